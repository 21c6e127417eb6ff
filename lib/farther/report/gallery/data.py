"""The data of the gallery's page for one run and split: images and boxes, and the outcomes of each method.

Columns are long, so they are base64 texts of little-endian numbers, which a browser turns into
arrays at once. Rows of one table refer to rows of another by number.

    images      id, file: texts, `file` as a URL relative to `roots[root]`; root: number; width,
    height: pixels accepting   threshold: the image threshold of the run; uncertainty: of each
    image, above it the image is rejected;
                null where the run has none
    of          number of images of the split roots       URLs, relative to the report's page, of
    the folders that hold the files categories  names of the objects' categories classes     names
    of the detector's classes objects     image: row; box: 4 numbers; category: number; crowd: 1 for
    a crowd or group, else 0 detections  image: row; box: 4 numbers; label: number of the class;
    confidence: 0 to 1 proposals   of each source: image: row; box: 4 numbers; objectness: 0 to 1;
    object: row of the object that it finds,
                −1 for none

and of each method

    tau         its threshold
    score       of each detection
    detection   outcome of each detection: its place in `farther.tables.annotations.REGION_OUTCOMES`
    object      outcome of each object: its place in `farther.tables.annotations.OBJECT_OUTCOMES`
    decided     of each object: row of the detection that decided its outcome, −1 for none

Boxes are xmin, ymin, xmax, ymax in parts of 65535 of the image's width or height: half a pixel of
an image that is 65,000 wide, less in all others.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
from pydantic_core import to_jsonable_python

from farther.errors import DataError
from farther.keyed import key_of
from farther.report.gallery.outcomes import REGION, SplitOutcomes
from farther.tables.annotations import OBJECT_OUTCOMES, REGION_OUTCOMES
from farther.tables.files import inside

#: A whole side of an image in parts.
WHOLE = 65535


class SplitData:
    """The data of a run and split; see the module.

    Args:
        found: The split, with its outcomes.
        roots: Dataset → folder of its image files.
        page: Folder of the page, which links to image files are relative to.
        most: Largest number of images; of more images, this many are taken, evenly spread over the
            split's table.

    Attributes:
        found: The split with the images that are taken alone.
        images: These images.
        of: Number of images of the split.
    """

    def __init__(self, found: SplitOutcomes, roots: Mapping[str, Path], page: Path, most: int):
        count = len(found.images)
        self.images = (
            found.images
            if count <= most
            else found.images[(np.arange(most) * count // most).tolist()]
        )
        self.found, self.of, self._roots, self._page = (
            found.of_images(self.images),
            count,
            roots,
            page,
        )
        self._places = self.images.select("image_id", "width", "height").with_row_index("image")
        self._links = {
            name: quote(Path(os.path.relpath(root, page)).as_posix())
            for name, root in roots.items()
        }

    def key(self) -> str:
        """Digest of all that `shared` is made from: whole files, and what else the split was given."""
        found = self.found
        files = found.files
        paths = [files.regions(found.split), files.images(found.split).parent]
        paths += [files.called(name, found.split) for name in found.proposals]
        params = {
            "run": files.run,
            "split": found.split,
            "threshold": found.threshold,
            "sources": list(found.proposals),
            "detector": to_jsonable_python(found.detector),
            "images": len(self.images),
            "links": self._links,
        }
        return key_of(paths, params)

    def method_key(self, name: str, shared_key: str) -> str:
        """Digest of all that `method` is made from, with `key` of what all methods share."""
        files, split = self.found.files, self.found.split
        paths = [
            files.scores(name, split),
            files.region_outcomes(name, split),
            files.object_outcomes(name, split),
        ]
        return key_of(paths, {"shared": shared_key, "tau": self.found.tau(name)})

    def shared(self) -> dict[str, Any]:
        """What all methods share, ready for JSON."""
        found = self.found
        objects, detections = self._shown(found.objects), self._shown(found.detections)
        categories = objects["category"].unique().sort().to_list()
        if len(categories) > WHOLE:
            raise DataError(
                f"{len(categories)} categories; the gallery shows at most {WHOLE}", field="category"
            )
        return {
            "of": self.of,
            **self._files(),
            "accepting": self._accepting(),
            "categories": categories,
            "objects": {
                "image": _packed(objects["image"], "<u4"),
                "box": _boxes(objects),
                "category": _packed(_places(objects["category"], categories), "<u2"),
                "crowd": _packed(objects["is_crowd"], "<u1"),
            },
            "classes": list(found.classes),
            "detections": {
                "image": _packed(detections["image"], "<u4"),
                "box": _boxes(detections),
                "label": _packed(detections["label"], "<u2"),
                "confidence": _packed(detections["confidence"], "<f4"),
            },
            "proposals": {
                name: self._proposals(rows, objects) for name, rows in found.proposals.items()
            },
        }

    def method(self, name: str) -> dict[str, Any]:
        """The outcomes of a method, ready for JSON."""
        detections = self._shown(self.found.detections_of(name))
        objects = self.found.objects_of(name)
        rows = detections.select(REGION).with_row_index("row")
        decided = (
            objects.join(rows, on=REGION, how="left", maintain_order="left")["row"]
            .cast(pl.Int64)
            .fill_null(-1)
        )
        return {
            "tau": self.found.tau(name),
            "score": _packed(detections["score"], "<f4"),
            "detection": _packed(_places(detections["outcome"], REGION_OUTCOMES), "<u1"),
            "object": _packed(_places(objects["outcome"], OBJECT_OUTCOMES), "<u1"),
            "decided": _packed(decided, "<i4"),
        }

    def _proposals(self, proposals: pl.DataFrame, objects: pl.DataFrame) -> dict[str, str]:
        shown = self._shown(proposals)
        rows = objects.select("object_id", row=pl.int_range(pl.len()))
        finds = shown.join(rows, on="object_id", how="left", maintain_order="left")[
            "row"
        ].fill_null(-1)
        return {
            "image": _packed(shown["image"], "<u4"),
            "box": _boxes(shown),
            "objectness": _packed(shown["objectness"], "<f4"),
            "object": _packed(finds, "<i4"),
        }

    def _accepting(self) -> dict[str, Any] | None:
        detector = self.found.self_aware
        if detector is None:
            return None
        taken = self.images.join(
            self.found.uncertainty(detector), on="image_id", how="left", maintain_order="left"
        )
        return {
            "threshold": detector.image_threshold,
            "uncertainty": _packed(taken["uncertainty"], "<f8"),
        }

    def _shown(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of images that are taken, with the image's row and size."""
        return rows.join(self._places, on="image_id", how="inner", maintain_order="left")

    def _files(self) -> dict[str, Any]:
        images = self.images
        datasets = images["dataset"].unique().sort().to_list()
        folders = [self._roots.get(name, Path()) for name in images["dataset"]]
        return {
            "roots": [
                self._links.get(name) for name in datasets
            ],  # None where params.yaml does not say where it lies
            "images": {
                "id": images["image_id"].to_list(),
                "file": [
                    _url(folder, file) for folder, file in zip(folders, images["file"], strict=True)
                ],
                "root": _packed(_places(images["dataset"], datasets), "<u2"),
                "width": _packed(images["width"], "<u4"),
                "height": _packed(images["height"], "<u4"),
            },
        }


@cache
def _url(root: Path, file: str) -> str:
    """URL of a file relative to its dataset's folder; all runs on a benchmark share the files."""
    return quote(inside(root, file).relative_to(root).as_posix())


def _places(names: pl.Series, among: Iterable[str]) -> pl.Series:
    """The place of each name in a list."""
    return names.cast(pl.Enum(list(among))).to_physical()


def _boxes(rows: pl.DataFrame) -> str:
    sides = rows.select(pl.col("width", "height").clip(lower_bound=1)).to_numpy()
    parts = np.rint(rows["box"].to_numpy() / np.hstack([sides, sides]) * WHOLE)
    return _packed(np.clip(parts, 0, WHOLE), "<u2")


def _packed(values: pl.Series | np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.asarray(values).astype(dtype).tobytes()).decode("ascii")
