"""nuImages (Caesar et al., 2020): tables in JSON, joined by tokens."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Expected,
    Reader,
    fill,
    image_file,
    register,
)
from farther.datasets.records import Record, records
from farther.errors import shorten
from farther.naming.registry import STRICT
from farther.tables.documents import ANNOTATION_BYTES, read_json
from farther.tables.files import inside

#: The ten classes of detection by the categories that they group, as for nuScenes; other categories
#: keep their names.
RENAMED = {
    "human.pedestrian.adult": "pedestrian",
    "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
    "movable_object.barrier": "barrier",
    "movable_object.trafficcone": "traffic_cone",
    "vehicle.bicycle": "bicycle",
    "vehicle.bus.bendy": "bus",
    "vehicle.bus.rigid": "bus",
    "vehicle.car": "car",
    "vehicle.construction": "construction_vehicle",
    "vehicle.motorcycle": "motorcycle",
    "vehicle.trailer": "trailer",
    "vehicle.truck": "truck",
}

#: Prefix of the classes of surfaces.
SURFACES = "flat."


@register("nuimages")
@dataclass(config=STRICT, kw_only=True)
class NuImages(Reader):
    """nuImages: key frames and the boxes of their objects.

    A box is xmin, ymin, xmax, ymax. The image id is the token of the key frame's `sample_data`.
    Frames between key frames have no annotations and are left out; so are outlines, and the classes
    of surfaces (`flat.`).

    Tolerated: objects of frames that are not key frames (dropped); an absent `width` or `height`.
    Errors: a file that is absent or does not parse; fields of a wrong type; a token that occurs
    twice or refers to nothing; xmax or ymax before xmin or ymin; a file name that leaves its
    folder.

    Args:
        subset_names: Subsets to read. When empty, those of train, val, mini and test that are
            present.
        tables: Folder of a subset's tables, within the root.
        renamed: Class by category; several categories may become one class.
    """

    SOURCE: ClassVar[str] = (
        "nuscenes.org/nuimages (Caesar et al., 2020, doi:10.1109/CVPR42600.2020.01164)"
    )

    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "val", "mini", "test")

    tables: str = "v1.0-{subset}"
    renamed: dict[str, str] = Field(default_factory=RENAMED.copy)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        folder = fill(self.tables, subset)
        tables = ("sample_data", "category", "object_ann")
        expected = [Expected(table, (f"{folder}/{table}.json",), "'Metadata'") for table in tables]
        expected.append(Expected("images", ("samples",), "'Samples'"))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        folder = fill(self.tables, subset)
        collector = Collector(self.root)
        skipped_frames = self._add_images(collector, folder)
        name_by_token = self._class_names(folder)
        names = [name for name in name_by_token.values() if not name.startswith(SURFACES)]
        categories = list(dict.fromkeys(self.renamed.get(name, name) for name in names))

        for row, record in enumerate(self._table(folder, "object_ann").values()):
            frame = record.text("sample_data_token")
            category_token = record.text("category_token")
            if frame in skipped_frames:
                continue
            if frame not in collector.rows:
                raise record.error(f"no row has the token {shorten(frame)}", "sample_data_token")
            if category_token not in name_by_token:
                raise record.error(
                    f"no row has the token {shorten(category_token)}", "category_token"
                )

            name = name_by_token[category_token]
            category = self.renamed.get(name, name)
            if category in categories:
                left, top, right, bottom = record.numbers("bbox", 4)
                collector.add_object(
                    collector.rows[frame],
                    (left, top, right, bottom),
                    categories.index(category),
                    row,
                )
        return collector.annotations(
            categories=categories,
            files=[f"{folder}/object_ann.json"],
            row="[{row}]",
            box_field="bbox",
        )

    def _add_images(self, collector: Collector, folder: str) -> set[str]:
        """Adds the key frames of a subset; returns the tokens of the other frames."""
        skipped_frames = set()
        for token, record in self._table(folder, "sample_data").items():
            if not record.flag("is_key_frame"):
                skipped_frames.add(token)
                continue
            file = image_file(self.root, ".", record.text("filename"), record.location("filename"))
            collector.add_image(token, file, record.location("token"), **record.sides())
        return skipped_frames

    def _class_names(self, folder: str) -> dict[str, str]:
        """Name of each category by its token."""
        table = self._table(folder, "category")
        return {token: record.text("name") for token, record in table.items()}

    def _table(self, folder: str, name: str) -> dict[str, Record]:
        """The rows of a table by their token.

        Outlines, which take most of the file, are dropped while parsing.
        """
        path = inside(self.root, f"{folder}/{name}.json")
        content = read_json(path, without=("mask",), limit=ANNOTATION_BYTES)
        record_by_token: dict[str, Record] = {}
        for record in records(content, path):
            token = record.text("token")
            if token in record_by_token:
                raise record.error(f"{token!r} occurs twice", "token")
            record_by_token[token] = record
        return record_by_token
