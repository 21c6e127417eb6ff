"""Object-detection datasets as Hugging Face's `datasets` keeps them: Parquet, Arrow, or images with JSON lines.

The library `datasets` itself is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

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
    rows,
    schema_features,
    split_of,
)
from farther.datasets.records import Record
from farther.errors import DataError, shorten
from farther.registry import STRICT
from farther.tables.files import inside, is_folder, refuse_broken_link
from farther.tables.folders import listed

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


@register("huggingface")
@dataclass(config=STRICT, kw_only=True)
class HuggingFace(Reader):
    """A folder of a dataset from the Hugging Face hub, or one that `datasets` wrote.

    A split is a subset. Its files are those that `README.md` names (`configs`); else, by their own
    names, `…/train-00000-of-00002.parquet`, `…/train/0000.parquet`,
    `train/data-00000-of-00001.arrow` (`save_to_disk`), or `train/metadata.jsonl` beside images. An
    image is a file's bytes or the path of a file; bytes become files once, when `ingest` runs.
    Objects are a list of records or a record of lists. A class is its name, or a number that the
    features (`ClassLabel`) name in the file's schema or in `README.md`. The image id is the column
    `image_id`, else the row's number; the object id is its `id` where these are unique in the
    subset (listed where they are not).

    Tolerated: no objects (null or empty); absent `width`, `height`, `iscrowd`, `is_difficult`.
    Listed: a split of `README.md` without files, beside others that have some. Errors: a file that
    is not Parquet, Arrow or JSON; a split of which not all files are there; files of one split in
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
            `categories`, `label`, `labels`, `class` that is there.
        box_format: x, y, width, height; edges; or centre and size.
        box_unit: Pixels, or widths and heights of the image.
        categories: Names of the classes by their numbers, where the features do not give them.
    """

    SOURCE: ClassVar[str] = "huggingface.co/datasets"

    config: str = ""
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    image: str = "image"
    objects: str = "objects"
    bbox: str = "bbox"
    category: str = ""
    box_format: Literal["xywh", "xyxy", "cxcywh"] = "xywh"
    box_unit: Literal["pixel", "image"] = "pixel"
    categories: tuple[str, ...] = ()

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        subsets = list(self.subset_names)
        if not subsets:
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
        shards = self._shards().get(subset) if is_folder(self.root) else None
        usual = (f"{self.config or 'data'}/{subset}-00000-of-00001.parquet",)
        paths = tuple(shards or self.files.get(subset, usual))
        return [
            Expected("rows with images and objects", paths, f"Parquet files of the split {subset}")
        ]

    def absent_subsets(self) -> dict[str, str]:
        """Splits of the configuration in `README.md` of which no file is there; see `Reader`."""
        configs = self._configurations()
        if self.subset_names or self.files or not configs:
            return {}
        patterns = data_files(configs[self._configuration(configs)])
        present = self._shards()
        return {
            split: names[0] for split, names in patterns.items() if split not in present and names
        }

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        shards = self._shards().get(subset)
        if not shards:
            known = ", ".join(self._shards()) or "none"
            raise DataError(f"no files of the split {subset!r}; there are: {known}", file=self.root)
        if not self.files:
            self._refuse_incomplete(subset, shards)
        found, categories, holds = Collector(self.root), dict[str, int](), list[bool]()
        numbered = 0
        for shard in shards:
            path = inside(self.root, shard)
            names = self._names(path)
            for name in names:
                categories.setdefault(name, len(categories))
            for number, values in enumerate(rows(path)):
                row = Record(values, path, str(number))
                image_id = self._image_id(row, len(found.rows))
                file, holds_image = self._file(row, subset, image_id)
                image = found.add_image(image_id, file, row.location("image_id"), **row.sides())
                found.annotated_by(path)
                holds.append(holds_image)
                records = list(self._records(row))
                for index, (record, name) in enumerate(
                    zip(records, self._classes(row, records, names), strict=True)
                ):
                    key = _first(record, OBJECT_ID)
                    numbered += record.has(key)
                    found.add_object(
                        image,
                        _edges(record.numbers(self.bbox, 4), self.box_format),
                        categories.setdefault(name, len(categories)),
                        index,
                        object_id=record.integer(key) if record.has(key) else None,
                        is_crowd=record.flag(_first(record, CROWD)),
                        is_difficult=record.flag(_first(record, DIFFICULT)),
                    )
        annotations = found.annotations(
            unit=self.box_unit,
            categories=list(categories),
            row="{image_id} " + (f"{self.objects}[{{row}}]" if self.objects else "[{row}]"),
            box_field=self.bbox,
            embedded=(lambda: self._pictures(shards, holds)) if any(holds) else None,
        )
        return _with_unique_ids(annotations, shards[0]) if numbered else annotations

    def _refuse_incomplete(self, subset: str, shards: Sequence[str]) -> None:
        """Refuses a split of which some files are not there: `train-00000-of-00002` says how many there are."""
        numbers_by_total: dict[tuple[str, int], set[int]] = {}
        for shard in shards:
            match = NUMBERED.fullmatch(Path(shard).stem)
            if match:
                place = (Path(shard).with_name(match["name"]).as_posix(), int(match["total"]))
                numbers_by_total.setdefault(place, set()).add(int(match["number"]))
        for (name, total), numbers in numbers_by_total.items():
            if len(numbers) < total:
                problem = f"{len(numbers)} of {total} files of the split {subset!r} are there; fetch the others, or name"
                raise DataError(
                    f"{problem} those to read in parameter 'files'", file=self.root / f"{name}-*"
                )

    def _records(self, row: Record) -> Iterator[Record]:
        """The objects of one row, each as a record."""
        value = row.values.get(self.objects) if self.objects else row.values
        if isinstance(value, dict):
            yield from self._from_lists(value, row)
        elif value is not None:
            yield from row.records(self.objects)
        elif self.objects not in row.values:
            raise row.error(
                f"the column is missing; there are {', '.join(row.values)}", self.objects
            )

    def _from_lists(self, value: dict[str, Any], row: Record) -> Iterator[Record]:
        """One record per entry of a record of lists; where the row is that record, only fields of objects count."""
        wanted = (
            value if self.objects else (self.bbox, *CATEGORY, self.category, *CROWD, *DIFFICULT)
        )
        lists = {
            key: values
            for key, values in value.items()
            if isinstance(values, list) and key in wanted
        }
        if len({len(values) for values in lists.values()}) > 1:
            found = ", ".join(f"{len(values)} × {key}" for key, values in lists.items())
            raise row.error(f"expected lists of one length, found {found}", self.objects or None)
        for index, values in enumerate(zip(*lists.values(), strict=True)):
            yield Record(
                dict(zip(lists, values, strict=True)),
                row.file,
                f"{row.row} {self.objects}[{index}]",
            )

    def _classes(self, row: Record, records: list[Record], names: list[str]) -> list[str]:
        """Name of the class of each object of a row; `names` are those that the features give to numbers."""
        return [self._class(record, names) for record in records]

    def _class(self, record: Record, names: list[str]) -> str:
        field = self.category or _first(record, CATEGORY)
        if isinstance(record.values.get(field), str):
            return record.text(field)
        number = record.integer(field)
        if not 0 <= number < len(names):
            known = (
                f"0 to {len(names) - 1}"
                if names
                else "none: parameter 'categories' or `dataset_info` in README.md gives the names"
            )
            raise record.error(f"no class has the number {number}; known: {known}", field)
        return names[number]

    def _image_id(self, row: Record, count: int) -> str:
        if not row.has("image_id"):
            return f"{count:06d}"
        return (
            row.text("image_id")
            if isinstance(row.values["image_id"], str)
            else str(row.integer("image_id"))
        )

    def _file(self, row: Record, subset: str, image_id: str) -> tuple[str, bool]:
        """Path of a row's image, and whether the row holds the image itself."""
        picture = row.values.get(self.image)
        content = picture.get("bytes") if isinstance(picture, dict) else picture
        name = row.text("file_name") if row.has("file_name") else ""
        if isinstance(content, bytes):
            location = row.location("file_name" if name else "image_id")
            return image_file(
                self.root, ".", name or f"{subset}/{image_id}{_suffix(content)}", location
            ), True
        if isinstance(picture, dict) and picture.get("path"):
            name = str(picture["path"])
        if not name or not (picture is None or isinstance(picture, dict)):
            raise row.error(
                f"expected the bytes or the path of an image, found {shorten(picture)}", self.image
            )
        folder, field = (
            (row.file.parent, "file_name") if row.file.name == METADATA else (self.root, self.image)
        )
        return image_file(
            self.root, folder.relative_to(self.root).as_posix(), name, row.location(field)
        ), False

    def _pictures(self, shards: list[str], holds: list[bool]) -> Iterator[tuple[int, bytes]]:
        """Row and bytes of each image that the files hold."""
        image = 0
        for shard in shards:
            for values in rows(inside(self.root, shard)):
                if holds[image]:
                    picture = values[self.image]
                    yield image, picture["bytes"] if isinstance(picture, dict) else picture
                image += 1

    def _names(self, path: Path) -> list[str]:
        """Names of the classes by number, as parameters, schema or `README.md` give them."""
        if self.categories:
            return list(self.categories)
        wanted = (self.category,) if self.category else CATEGORY
        features = [schema_features(path), self._described()]
        return next((names for f in features if (names := class_names(f, wanted, ""))), [])

    def _shards(self) -> dict[str, list[str]]:
        """Files of each split, within the root."""
        if self.files:
            return self._chosen()
        configs = self._configurations()
        patterns = data_files(configs[self._configuration(configs)]) if configs else {}
        return self._matching(patterns) if patterns else self._by_name()

    def _chosen(self) -> dict[str, list[str]]:
        """Files of each split that parameter `files` names; a split without files is an error."""
        shards = self._matching({split: list(paths) for split, paths in self.files.items()})
        for split, wanted in self.files.items():
            if split not in shards:
                raise DataError(
                    f"no file of {split!r} matches {', '.join(wanted)}; see 'files'", file=self.root
                )
        return shards

    def _matching(self, patterns: dict[str, list[str]]) -> dict[str, list[str]]:
        """Files that match the patterns of each subset; subsets without files are left out."""
        shards = {}
        for subset, wanted in patterns.items():
            inner = [
                inside(self.root, pattern).relative_to(self.root).as_posix() for pattern in wanted
            ]
            paths = [
                path.relative_to(self.root).as_posix()
                for p in inner
                for path in listed(self.root, p)
            ]
            if paths:
                shards[subset] = list(dict.fromkeys(paths))
        return shards

    def _configurations(self) -> dict[str, dict[str, Any]]:
        """The configurations that `README.md` describes, by name."""
        configs = card(self.root).get("configs")
        configs = configs if isinstance(configs, list) else ()
        return {str(c.get("config_name", "default")): c for c in configs if isinstance(c, dict)}

    def _described(self) -> Any:
        """Features of the configuration in `README.md`; None if not described."""
        described = card(self.root).get("dataset_info")
        if not isinstance(described, list):
            return described
        configs = self._configurations()
        chosen = self._configuration(configs) if configs and not self.files else self.config
        return [
            info
            for info in described
            if isinstance(info, dict) and info.get("config_name", chosen) == chosen
        ]

    def _configuration(self, configs: dict[str, dict[str, Any]]) -> str:
        """The requested configuration, or the default one of `README.md`."""
        marked = [name for name, config in configs.items() if config.get("default")]
        only = list(configs) if len(configs) == 1 else []
        chosen = self.config or [*marked, *({"default"} & configs.keys()), *only, ""][0]
        if chosen not in configs:
            problem = (
                f"no configuration {chosen!r}; parameter 'config' is one of {', '.join(configs)}"
            )
            raise DataError(problem, file=self.root / "README.md", field="configs")
        return chosen

    def _by_name(self) -> dict[str, list[str]]:
        """Files of each split by their names."""
        shards: dict[str, list[str]] = {}
        folders: dict[str, str] = {}
        for path in listed(self.root, "**/*"):
            refuse_broken_link(path)
            relative = path.relative_to(self.root)
            if path.suffix not in (".parquet", ".arrow") and path.name != METADATA:
                continue
            if path.name.startswith("cache-") or (
                self.config and self.config not in relative.parts
            ):
                continue
            split, folder = split_of(relative), relative.parent.as_posix()
            if folders.setdefault(split, folder) != folder:
                problem = f"files of {split!r} lie in {folders[split]} and in {folder}"
                raise DataError(f"{problem}; parameter 'config' chooses a folder", file=self.root)
            shards.setdefault(split, []).append(relative.as_posix())
        return shards


def _with_unique_ids(annotations: Annotations, file: str) -> Annotations:
    """The annotations with counted object ids, and a warning, where those of the dataset are not unique."""
    ids = annotations.objects.object_id
    unique = len(np.unique(ids))
    if unique == len(ids):
        return annotations
    found = f"{unique} ids of {len(ids)} objects"
    warning = DataWarning(
        "object ids not unique", "dataset", file, None, "id", found, "counted instead"
    )
    objects = replace(annotations.objects, object_id=np.arange(len(ids)))
    return replace(annotations, objects=objects, warnings=[*annotations.warnings, warning])


def _first(record: Record, names: tuple[str, ...]) -> str:
    """The first of several fields that a record has; the first of all where it has none."""
    return next((name for name in names if name in record.values), names[0])


def _edges(values: list[float], form: str) -> Edges:
    a, b, c, d = values
    if form == "xyxy":
        return a, b, c, d
    left, top = (a - c / 2, b - d / 2) if form == "cxcywh" else (a, b)
    return left, top, left + c, top + d


def _suffix(content: bytes) -> str:
    """Ending of the name of an image file, by its first bytes; "" where they are of none that is known."""
    return next((suffix for start, suffix in SIGNATURES if content.startswith(start)), "")
