"""Object-detection datasets in the files of Hugging Face's `datasets`.

They are Parquet, Arrow, or images with JSON lines. The library `datasets` itself is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass as plain
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.annotation_files import first_keys
from farther.datasets.base import (
    Annotations,
    Collector,
    DataWarning,
    Edges,
    Expected,
    Reader,
    image_file,
    register,
)
from farther.datasets.huggingface_files import (
    METADATA,
    card,
    class_names,
    data_files,
    is_metadata,
    rows,
    schema_features,
    split_of,
)
from farther.datasets.recognition import Recognised
from farther.datasets.records import Record
from farther.errors import DataError, shorten
from farther.naming.registry import STRICT
from farther.tables.endings import has_ending
from farther.tables.files import inside, is_folder, refuse_broken_link
from farther.tables.folders import files_below, listed

#: Possible names of an object's fields; the first that is present counts.
CATEGORY = ("category", "category_id", "categories", "label", "labels", "class")
OBJECT_ID = ("id", "bbox_id")
CROWD = ("iscrowd", "is_crowd")
DIFFICULT = ("is_difficult", "difficult")

#: Name of one of several files of a split, without ending.
NUMBERED = re.compile(r"(?P<name>.+)-(?P<number>\d{1,9})-of-(?P<total>\d{1,9})")

#: First bytes of image files, and the ending of their names.
SIGNATURES = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"RIFF", ".webp"),
)


@plain(frozen=True)
class _ImageSource:
    """The image of a row: its file within the root, and whether the row contains it."""

    file: str
    is_embedded: bool


@register("huggingface")
@dataclass(config=STRICT, kw_only=True)
class HuggingFace(Reader):
    """A folder of a dataset from the Hugging Face hub, or one that `datasets` wrote.

    A split is a subset. Its files are those in `README.md` (`configs`); else, by their own names,
    `…/train-00000-of-00002.parquet`, `…/train/0000.parquet`,
    `train/data-00000-of-00001.arrow` (`save_to_disk`), or `train/metadata.jsonl` beside images. An
    image is a file's bytes or the path of a file; `ingest` writes bytes to files once.
    Objects are a list of records or a record of lists. A class is its name, or a number that the
    features (`ClassLabel`) name in the file's schema or in `README.md`. The image id is the column
    `image_id`, else the row's number; the object id is its `id` where these are unique in the
    subset (listed where they are not).

    Tolerated: no objects (null or empty); absent `width`, `height`, `iscrowd`, `is_difficult`.
    Listed: a split of `README.md` without files while others have some. Errors: a file that is not
    Parquet, Arrow or JSON; a split of which some files are absent; files of one split in
    several folders (`config` chooses one); an image id that occurs twice; a row without image;
    lists of different lengths in one row's objects; fields of a wrong type; numbers for classes
    that nothing names; a negative size; a file name that leaves its folder.

    Args:
        subset_names: Splits to read. When empty, all there are.
        config: Name of a configuration of `README.md`, or of a folder.
        files: Files of each split instead, within the root, with `*`: `{"train":
            ["data/train-*"]}`.
        image: The column of images.
        objects: The column of objects; "" where `bbox` and `category` are columns themselves.
        bbox: The field of the box.
        category: The field of the class; when empty, the first of `category`, `category_id`,
            `categories`, `label`, `labels`, `class` that is present.
        box_format: x, y, width, height; edges; or centre and size.
        box_unit: Pixels, or widths and heights of the image.
        categories: Names of the classes by their numbers, where the features do not give them.
    """

    SOURCE: ClassVar[str] = "huggingface.co/datasets"
    COUNTS_UNLISTED: ClassVar[bool] = True

    config: str = ""
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    image: str = "image"
    objects: str = "objects"
    bbox: str = "bbox"
    category: str = ""
    box_format: Literal["xywh", "xyxy", "cxcywh"] = "xywh"
    box_unit: Literal["pixel", "image"] = "pixel"
    categories: tuple[str, ...] = ()

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """A folder with a metadata.jsonl that has images and objects; see `Reader`."""
        for file in sorted(files_below(folder, (".jsonl",))):
            if is_metadata(file) and {"file_name", "objects"} <= first_keys(file):
                return Recognised()
        return None

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        if self.subset_names:
            return list(self.subset_names)
        self._check_root()
        subsets = list(self._shards())
        if not subsets:
            raise DataError(
                f"no annotations found; looked for *.parquet, *.arrow and {METADATA}",
                file=self.root,
            )
        return subsets

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        usual_file = f"{self.config or 'data'}/{subset}-00000-of-00001.parquet"
        paths = self.files.get(subset, (usual_file,))
        if is_folder(self.root):
            paths = tuple(self._shards().get(subset, ())) or paths
        source = f"Parquet files of the split {subset}"
        return [Expected("rows with images and objects", paths, source)]

    def absent_subsets(self) -> dict[str, str]:
        """Splits of the configuration in `README.md` without any file; see `Reader`."""
        configs = self._configurations()
        if self.subset_names or self.files or not configs:
            return {}
        present = self._shards()
        absent = {}
        for split, patterns in self._card_patterns().items():
            if split not in present and patterns:
                absent[split] = patterns[0]
        return absent

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        shards = self._shards().get(subset)
        if not shards:
            known = ", ".join(self._shards()) or "none"
            raise DataError(f"no files of the split {subset!r}; there are: {known}", file=self.root)
        if not self.files:
            self._refuse_incomplete(subset, shards)

        collector = Collector(self.root)
        index_by_category: dict[str, int] = {}
        is_embedded: list[bool] = []
        has_object_ids = False
        for shard in shards:
            path = inside(self.root, shard)
            names = self._class_names(path)
            for name in names:
                index_by_category.setdefault(name, len(index_by_category))
            for number, values in enumerate(rows(path)):
                row = Record(values, path, str(number))
                image_id = self._image_id(row, len(collector.rows))
                source = self._image_source(row, subset, image_id)
                image = collector.add_image(
                    image_id, source.file, row.location("image_id"), **row.sides()
                )
                collector.annotated_by(path)
                is_embedded.append(source.is_embedded)
                has_object_ids |= self._add_objects(collector, image, row, names, index_by_category)

        embedded = None
        if any(is_embedded):
            embedded = partial(self._embedded_images, shards, is_embedded)
        object_place = f"{self.objects}[{{row}}]" if self.objects else "[{row}]"
        annotations = collector.annotations(
            unit=self.box_unit,
            categories=list(index_by_category),
            row="{image_id} " + object_place,
            box_field=self.bbox,
            embedded=embedded,
        )
        if has_object_ids:
            return _with_unique_ids(annotations, shards[0])
        return annotations

    def _add_objects(
        self,
        collector: Collector,
        image: int,
        row: Record,
        names: list[str],
        index_by_category: dict[str, int],
    ) -> bool:
        """Adds the objects of a row.

        Args:
            collector: Takes the objects.
            image: Row of the image.
            row: Row of a file.
            names: Names of the classes by number.
            index_by_category: Index of each class so far; further classes are added.

        Returns:
            Whether an object has an id.
        """
        has_object_ids = False
        records = list(self._records(row))
        categories = self._classes(row, records, names)
        for index, (record, category) in enumerate(zip(records, categories, strict=True)):
            box = _edges(record.numbers(self.bbox, 4), self.box_format)
            category_index = index_by_category.setdefault(category, len(index_by_category))
            id_field = _first_field(record, OBJECT_ID)
            object_id = None
            if record.has(id_field):
                has_object_ids = True
                object_id = record.integer(id_field)
            collector.add_object(
                image,
                box,
                category_index,
                index,
                object_id=object_id,
                is_crowd=record.flag(_first_field(record, CROWD)),
                is_difficult=record.flag(_first_field(record, DIFFICULT)),
            )
        return has_object_ids

    def _refuse_incomplete(self, subset: str, shards: Sequence[str]) -> None:
        """Refuses a split without some of its files: `train-00000-of-00002` is one of two."""
        numbers_by_series: dict[tuple[str, int], set[int]] = {}
        for shard in shards:
            match = NUMBERED.fullmatch(Path(shard).stem)
            if match:
                name = Path(shard).with_name(match["name"]).as_posix()
                series = (name, int(match["total"]))
                numbers_by_series.setdefault(series, set()).add(int(match["number"]))

        for (name, total), numbers in numbers_by_series.items():
            if len(numbers) < total:
                raise DataError(
                    f"{len(numbers)} of {total} files of the split {subset!r} are there; fetch the "
                    "others, or name those to read in parameter 'files'",
                    file=self.root / f"{name}-*",
                )

    def _records(self, row: Record) -> Iterator[Record]:
        """The objects of one row, each as a record."""
        value = row.values.get(self.objects) if self.objects else row.values
        if isinstance(value, dict):
            yield from self._records_of_lists(value, row)
        elif value is not None:
            yield from row.records(self.objects)
        elif self.objects not in row.values:
            raise row.error(
                f"the column is missing; there are {', '.join(row.values)}", self.objects
            )

    def _records_of_lists(self, value: dict[str, Any], row: Record) -> Iterator[Record]:
        """The objects of a record of lists.

        Args:
            value: The record. Where it is the row itself, only the fields of objects are read.
            row: The row.
        """
        object_fields = (self.bbox, *CATEGORY, self.category, *CROWD, *DIFFICULT)
        columns = {}
        for field, values in value.items():
            is_object_field = bool(self.objects) or field in object_fields
            if isinstance(values, list) and is_object_field:
                columns[field] = values

        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            found = ", ".join(f"{len(values)} × {field}" for field, values in columns.items())
            raise row.error(f"expected lists of one length, found {found}", self.objects or None)
        for index, values in enumerate(zip(*columns.values(), strict=True)):
            fields = dict(zip(columns, values, strict=True))
            yield Record(fields, row.file, f"{row.row} {self.objects}[{index}]")

    def _classes(self, row: Record, records: list[Record], names: list[str]) -> list[str]:
        """Name of the class of each object of a row.

        Args:
            row: The row.
            records: Its objects.
            names: Names of the classes by number, as the features give them.
        """
        return [self._class(record, names) for record in records]

    def _class(self, record: Record, names: list[str]) -> str:
        """Name of the class of an object."""
        field = self.category or _first_field(record, CATEGORY)
        if isinstance(record.values.get(field), str):
            return record.text(field)
        number = record.integer(field)
        if 0 <= number < len(names):
            return names[number]
        known = "none: parameter 'categories' or `dataset_info` in README.md gives the names"
        if names:
            known = f"0 to {len(names) - 1}"
        raise record.error(f"no class has the number {number}; known: {known}", field)

    def _image_id(self, row: Record, count: int) -> str:
        """The id of a row's image; `count`, the number of rows before it, where it has none."""
        if not row.has("image_id"):
            return f"{count:06d}"
        if isinstance(row.values["image_id"], str):
            return row.text("image_id")
        return str(row.integer("image_id"))

    def _image_source(self, row: Record, subset: str, image_id: str) -> _ImageSource:
        """The image file of a row.

        Raises:
            DataError: the row has neither bytes nor path of an image, or the path leads out of its
                folder.
        """
        picture = row.values.get(self.image)
        content = picture.get("bytes") if isinstance(picture, dict) else picture
        name = row.text("file_name") if row.has("file_name") else ""
        if isinstance(content, bytes):
            location = row.location("file_name" if name else "image_id")
            name = name or f"{subset}/{image_id}{_suffix(content)}"
            return _ImageSource(image_file(self.root, ".", name, location), is_embedded=True)

        if isinstance(picture, dict) and picture.get("path"):
            name = str(picture["path"])
        if not name or not (picture is None or isinstance(picture, dict)):
            raise row.error(
                f"expected the bytes or the path of an image, found {shorten(picture)}", self.image
            )
        folder = "."
        location = row.location(self.image)
        if is_metadata(row.file):
            folder = row.file.parent.relative_to(self.root).as_posix()
            location = row.location("file_name")
        return _ImageSource(image_file(self.root, folder, name, location), is_embedded=False)

    def _embedded_images(
        self, shards: list[str], is_embedded: list[bool]
    ) -> Iterator[tuple[int, bytes]]:
        """Row and bytes of each image that the files contain.

        Args:
            shards: Files of the split.
            is_embedded: Whether the files contain the image, for each row.
        """
        image = 0
        for shard in shards:
            for values in rows(inside(self.root, shard)):
                if is_embedded[image]:
                    picture = values[self.image]
                    content = picture["bytes"] if isinstance(picture, dict) else picture
                    yield image, content
                image += 1

    def _class_names(self, path: Path) -> list[str]:
        """Names of the classes by number, as parameters, schema or `README.md` give them."""
        if self.categories:
            return list(self.categories)
        fields = (self.category,) if self.category else CATEGORY
        features_of_schema = schema_features(path)
        features_of_card = self._card_features()
        names = class_names(features_of_schema, fields, "")
        return names or class_names(features_of_card, fields, "")

    def _shards(self) -> dict[str, list[str]]:
        """Files of each split, within the root."""
        if self.files:
            return self._files_of_parameter()
        patterns = self._card_patterns()
        if patterns:
            return self._matching(patterns)
        return self._shards_by_name()

    def _files_of_parameter(self) -> dict[str, list[str]]:
        """Files of each split that parameter `files` names.

        Raises:
            DataError: a split has no files.
        """
        shards = self._matching(self.files)
        for split, patterns in self.files.items():
            if split not in shards:
                raise DataError(
                    f"no file of {split!r} matches {', '.join(patterns)}; see 'files'",
                    file=self.root,
                )
        return shards

    def _matching(self, patterns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Files that match the patterns of each subset; subsets without files are left out."""
        shards = {}
        for subset, subset_patterns in patterns.items():
            files: dict[str, None] = {}
            for pattern in subset_patterns:
                relative = inside(self.root, pattern).relative_to(self.root).as_posix()
                for path in listed(self.root, relative):
                    files[path.relative_to(self.root).as_posix()] = None
            if files:
                shards[subset] = list(files)
        return shards

    def _configurations(self) -> dict[str, dict[str, Any]]:
        """The configurations that `README.md` describes, by name."""
        configs = card(self.root).get("configs")
        if not isinstance(configs, list):
            return {}
        config_by_name = {}
        for config in configs:
            if isinstance(config, dict):
                config_by_name[str(config.get("config_name", "default"))] = config
        return config_by_name

    def _card_patterns(self) -> dict[str, list[str]]:
        """Patterns of files by split in the configuration of `README.md`; {} without any."""
        configs = self._configurations()
        if not configs:
            return {}
        return data_files(configs[self._configuration(configs)])

    def _card_features(self) -> Any:
        """Features of the configuration in `README.md`; None if not described."""
        dataset_info = card(self.root).get("dataset_info")
        if not isinstance(dataset_info, list):
            return dataset_info
        configs = self._configurations()
        name = self.config
        if configs and not self.files:
            name = self._configuration(configs)
        return [
            info
            for info in dataset_info
            if isinstance(info, dict) and info.get("config_name", name) == name
        ]

    def _configuration(self, configs: dict[str, dict[str, Any]]) -> str:
        """The requested configuration, or the default one of `README.md`.

        Raises:
            DataError: there is no such configuration, or none is the default.
        """
        name = self.config or _default_configuration(configs)
        if name not in configs:
            raise DataError(
                f"no configuration {name!r}; parameter 'config' is one of {', '.join(configs)}",
                file=self.root / "README.md",
                field="configs",
            )
        return name

    def _shards_by_name(self) -> dict[str, list[str]]:
        """Files of each split by their names.

        Raises:
            DataError: the files of a split are in several folders.
        """
        shards: dict[str, list[str]] = {}
        folder_by_split: dict[str, str] = {}
        for path in listed(self.root, "**/*"):
            refuse_broken_link(path)
            relative = path.relative_to(self.root)
            if not self._is_shard(relative):
                continue
            split = split_of(relative)
            folder = relative.parent.as_posix()
            if folder_by_split.setdefault(split, folder) != folder:
                raise DataError(
                    f"files of {split!r} lie in {folder_by_split[split]} and in {folder}; "
                    "parameter 'config' chooses a folder",
                    file=self.root,
                )
            shards.setdefault(split, []).append(relative.as_posix())
        return shards

    def _is_shard(self, path: Path) -> bool:
        """True for a file of rows of the configuration, and not of the library's cache."""
        if not has_ending(path, (".parquet", ".arrow")) and not is_metadata(path):
            return False
        if path.name.startswith("cache-"):
            return False
        return not self.config or self.config in path.parts


def _default_configuration(configs: dict[str, dict[str, Any]]) -> str:
    """Name of the configuration that is read by default; "" where there is none.

    It is the first one that is marked so, else the one called `default`, else the only one.
    """
    for name, config in configs.items():
        if config.get("default"):
            return name
    if "default" in configs:
        return "default"
    if len(configs) == 1:
        return next(iter(configs))
    return ""


def _with_unique_ids(annotations: Annotations, file: str) -> Annotations:
    """The annotations with counted object ids, and a warning, where the dataset's repeat."""
    object_ids = annotations.objects.object_id
    unique_count = len(np.unique(object_ids))
    if unique_count == len(object_ids):
        return annotations
    warning = DataWarning(
        kind="object ids not unique",
        about="dataset",
        file=file,
        row=None,
        field="id",
        found=f"{unique_count} ids of {len(object_ids)} objects",
        action="counted instead",
    )
    objects = replace(annotations.objects, object_id=np.arange(len(object_ids)))
    return replace(annotations, objects=objects, warnings=[*annotations.warnings, warning])


def _first_field(record: Record, fields: tuple[str, ...]) -> str:
    """The first of several fields that a record has; the first of all where it has none."""
    for field in fields:
        if field in record.values:
            return field
    return fields[0]


def _edges(values: list[float], box_format: str) -> Edges:
    """Edges of a box that is given in one of the formats of `HuggingFace.box_format`."""
    if box_format == "xyxy":
        left, top, right, bottom = values
        return left, top, right, bottom
    x, y, width, height = values
    if box_format == "cxcywh":
        x -= width / 2
        y -= height / 2
    return x, y, x + width, y + height


def _suffix(content: bytes) -> str:
    """Ending of the name of an image file, by its first bytes; "" for an unknown format."""
    for signature, suffix in SIGNATURES:
        if content.startswith(signature):
            return suffix
    return ""
