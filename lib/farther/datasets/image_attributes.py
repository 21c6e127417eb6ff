"""Attributes of images: from the table `images.csv` of a dataset, and their brightness.

The table lies in the dataset's root. Its column `file` names an image; every other column is an
attribute, whose values divide the images into subsets:

    file,weather,camera
    val/0001.jpg,rain,left
    val/0002.jpg,clear,right
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path

import polars as pl
from PIL import Image
from tqdm import tqdm

from farther.datasets.base import DataWarning, ImageAttribute
from farther.errors import DataError
from farther.images.read import open_image
from farther.processes import count_cores
from farther.tables import Images
from farther.tables.files import is_file

#: The table of a dataset's images, within its root.
FILE = "images.csv"

#: Its column that names the image.
KEY = "file"

#: Parts of results that are not by an attribute of images: none may have such a name.
RESERVED = (
    *("best", "category", "class", "distance", "error"),
    *("iou", "minus", "ranking", "size", "supercategory"),
)

#: Most values of an attribute: of more, each subset would be a handful of images.
MOST_VALUES = 50

#: Number of files that a warning names.
LISTED = 3

#: Name of the attribute of images that is measured.
BRIGHTNESS = "brightness"

#: Upper limit of the mean luma of 0 to 255, and the value of `BRIGHTNESS` below it.
BRIGHTNESS_VALUES = ((64, "dark"), (128, "medium"), (256, "bright"))

#: Number of images that a thread reads in one task.
IMAGES_PER_TASK = 16

#: Side in pixels to which an image is reduced before its luma is averaged.
REDUCED_SIDE = 64


@dataclass
class ImageTable:
    """The table `images.csv` of a dataset.

    Args:
        frame: Its rows, as texts; a column `file`, and one per attribute.
        warnings: Columns that are not attributes.

    Attributes:
        used: Files of the rows whose images were found so far.
        without_row: Files of the images without a row, so far.
    """

    frame: pl.DataFrame
    warnings: list[DataWarning] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    without_row: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, root: Path) -> ImageTable | None:
        """The table of a dataset; None where it has none.

        Raises:
            DataError: the table cannot be read, or names an image twice.
        """
        path = root / FILE
        if not is_file(path):
            return None
        frame = _read_csv(path)
        if KEY not in frame.columns:
            found = ", ".join(frame.columns) or "no column"
            problem = _warning(
                "no attributes of images",
                f"the columns {found}",
                f"ignored: a column {KEY!r} must name the images, as {KEY},weather",
            )
            return cls(pl.DataFrame(schema={KEY: pl.String}), [problem])

        frame = frame.with_columns(pl.col(KEY).str.strip_chars())
        _refuse_repeated(frame, path)
        table = cls(frame)
        table._leave_out_reserved_columns()
        table._leave_out_long_columns()
        return table

    def _leave_out_reserved_columns(self) -> None:
        """Leaves out columns whose names parts of results cannot have, with a warning."""
        for column in self.frame.columns:
            advice = ""
            if column in RESERVED:
                advice = f"rename it, such as image_{column}"
            elif "=" in column or "," in column:
                advice = "rename it, without commas and equals signs"
            if advice:
                self.frame = self.frame.drop(column)
                self.warnings.append(
                    _warning(
                        "attribute with a reserved name",
                        f"the column {column!r}",
                        f"ignored: {advice}",
                        column,
                    )
                )

    def _leave_out_long_columns(self) -> None:
        """Leaves out columns with too many values, such as a number or a time, with a warning."""
        for column in self.frame.columns:
            if column == KEY:
                continue
            values = self.frame[column].n_unique()
            if values > MOST_VALUES:
                self.frame = self.frame.drop(column)
                self.warnings.append(
                    _warning(
                        "attribute with too many values",
                        f"{values} values of {column!r}",
                        f"ignored: give at most {MOST_VALUES}, such as ranges",
                        column,
                    )
                )

    def attributes_of(self, images: Images) -> list[ImageAttribute]:
        """The attributes of the images of a subset; an empty cell gives none.

        Notes which rows and images have a partner, for `absence_warnings`.
        """
        image_id_by_file = dict(zip(images.file, images.image_id, strict=True))
        attributes = []
        files_with_row = set()
        for row in self.frame.iter_rows(named=True):
            file = row[KEY]
            if file not in image_id_by_file:
                continue
            files_with_row.add(file)
            for name, value in row.items():
                if name != KEY and value:
                    attributes.append(ImageAttribute(image_id_by_file[file], name, value))

        self.used |= files_with_row
        for file in image_id_by_file:
            if file not in files_with_row:
                self.without_row.append(file)
        return attributes

    def absence_warnings(self) -> list[DataWarning]:
        """Warnings about rows without an image, and images without a row, of all subsets."""
        warnings = list(self.warnings)
        without_image = [file for file in self.frame[KEY] if file not in self.used]
        if without_image:
            warnings.append(
                _warning(
                    "row without an image",
                    f"{len(without_image)} rows, such as {_some(without_image)}",
                    f"ignored: {KEY!r} is the path within the dataset's root",
                    KEY,
                )
            )
        if self.without_row and len(self.frame):
            warnings.append(
                _warning(
                    "image without a row",
                    f"{len(self.without_row)} images, such as {_some(self.without_row)}",
                    "they have no attributes of this table",
                )
            )
        return warnings


def _some(files: Sequence[str]) -> str:
    return ", ".join(files[:LISTED])


def _read_csv(path: Path) -> pl.DataFrame:
    """The rows of a table as texts, "" where a cell is empty."""
    try:
        frame = pl.read_csv(path, infer_schema=False, encoding="utf8")
    except pl.exceptions.NoDataError:
        return pl.DataFrame()
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        problem = f"cannot be read as a table in UTF-8: {error}"
        raise DataError(problem, file=path) from None
    frame = frame.rename(lambda name: name.strip())
    return frame.with_columns(pl.all().fill_null("").str.strip_chars())


def _refuse_repeated(frame: pl.DataFrame, path: Path) -> None:
    is_repeated = ~frame[KEY].is_first_distinct()
    if is_repeated.any():
        row = int(is_repeated.arg_max() or 0)
        problem = f"{frame[KEY][row]!r} has a row already; give each image one row"
        raise DataError(problem, file=path, row=f"line {row + 2}", field=KEY)


def _warning(kind: str, found: str, action: str, column: str | None = None) -> DataWarning:
    return DataWarning(kind, "dataset", FILE, None, column, found, action)


def brightness_of(path: Path) -> str:
    """Brightness of an image: "dark", "medium" or "bright".

    Its mean luma (ITU-R BT.601) is below a quarter, below a half, or above a half of the scale.

    Args:
        path: A file that can be read.

    Raises:
        OSError, ValueError, SyntaxError, …: see `open_image`.
    """
    with open_image(path) as image:
        # JPEG files are decoded at a reduced size.
        image.draft("L", (REDUCED_SIDE, REDUCED_SIDE))
        reduced = image.convert("L").resize((REDUCED_SIDE, REDUCED_SIDE), Image.Resampling.BOX)
        histogram = reduced.histogram()
    luma_sum = sum(luma * count for luma, count in enumerate(histogram))
    mean = luma_sum / sum(histogram)
    for limit, value in BRIGHTNESS_VALUES:
        if mean < limit:
            return value
    raise AssertionError(mean)  # luma is at most 255


def brightness_attributes(images: Images, root: Path) -> list[ImageAttribute]:
    """The attribute `brightness` of images; none of an image that cannot be decoded.

    Args:
        images: The images.
        root: The folder that their files are in.
    """
    paths = [root / file for file in images.file]
    with ThreadPool(count_cores()) as pool:
        values = tqdm(
            pool.imap(_brightness_or_none, paths, chunksize=IMAGES_PER_TASK),
            total=len(paths),
            desc=BRIGHTNESS,
            unit="image",
            leave=False,
            disable=None,
        )
        attributes = []
        for image_id, value in zip(images.image_id, values, strict=True):
            if value is not None:
                attributes.append(ImageAttribute(image_id, BRIGHTNESS, value))
    return attributes


def _brightness_or_none(path: Path) -> str | None:
    """The brightness of an image; None where it is damaged: the stage `infer` names it."""
    try:
        return brightness_of(path)
    except Exception:  # decoders raise OSError, SyntaxError, struct.error, …
        return None
