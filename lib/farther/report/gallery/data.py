"""The data of the gallery's page for one run and split: images and boxes, and outcomes by method.

Columns are long, so they are packed; see `farther.report.gallery.packing`. Rows of one table refer
to rows of another by number.

    images      id, file: texts, `file` as a URL relative to `roots[root]`, or one text for all
                files, in which * stands for the id; root: number; width, height: pixels
    accepting   threshold: the image threshold of the run; uncertainty: of each image, above it the
                image is rejected; null where the run has none
    of          number of images of the split
    roots       URLs of the folders that hold the files; see `folder_url`
    categories  names of the objects' categories
    classes     names of the detector's classes
    objects     image: row; box: 4 numbers; category: number; crowd: 1 for a crowd or group, else 0
    detections  image: row; box: 4 numbers; label: number of the class; confidence: 0 to 65535
    subsets     ways to divide images or objects: name; of: "image" or "object"; values: texts;
                codes: of each image or object, the place of its value
    proposals   of each source: image: row; box: 4 numbers; objectness: 0 to 1;
                object: row of the object that it finds, −1 for none

and of each method

    tau         its threshold
    score       of each detection
    detection   outcome of each detection: its place in `farther.tables.annotations.REGION_OUTCOMES`
    object      outcome of each object: its place in `farther.tables.annotations.OBJECT_OUTCOMES`
    decided     of each object: row of the detection that decided its outcome, counted from the
                first detection of the image; −1 for none

Boxes are xmin, ymin, xmax, ymax in parts of 65535 of the image's width or height: half a pixel of
an image that is 65,000 wide, less in all others. Confidences are in the same parts of 1.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
from pydantic_core import to_jsonable_python

from farther.errors import DataError
from farther.evaluation.groups.open_set import NO_VALUE
from farther.incremental.keyed import key_of
from farther.metrics.open_set.outcomes import sizes_of
from farther.report.gallery.outcomes import REGION, SplitOutcomes
from farther.report.gallery.packing import packed, packed_integers
from farther.tables.annotations import OBJECT_OUTCOMES, REGION_OUTCOMES
from farther.tables.files import inside

#: Parts of a side of an image, and of a confidence.
PARTS = 65535

#: Row of no object or detection.
NO_ROW = -1


class SplitData:
    """The data of a run and split; see the module.

    Args:
        outcomes: The split, with its outcomes.
        roots: Dataset → folder of its image files.
        project: The project's folder.
        limit: Largest number of images; of more images, this many are taken, evenly spread over the
            split's table.

    Attributes:
        found: The split with only the images that are taken.
        images: These images.
        of: Number of images of the split.
    """

    def __init__(
        self, outcomes: SplitOutcomes, roots: Mapping[str, Path], project: Path, limit: int
    ):
        self.image_count = len(outcomes.images)
        self.images = _evenly_spread(outcomes.images, limit)
        self.outcomes = outcomes.of_images(self.images)
        self._roots = roots
        self._image_rows = self.images.select("image_id", "width", "height").with_row_index("image")
        self._links = {}
        for dataset, root in roots.items():
            self._links[dataset] = folder_url(root, project)

    def key(self) -> str:
        """Cache key of `shared`: hash of the files and of all else that it depends on."""
        outcomes = self.outcomes
        files = outcomes.files
        paths = [files.regions(outcomes.split), files.images(outcomes.split).parent]
        paths += [files.called(source, outcomes.split) for source in outcomes.proposals]
        params = {
            "run": files.run,
            "split": outcomes.split,
            "threshold": outcomes.threshold,
            "sources": list(outcomes.proposals),
            "detector": to_jsonable_python(outcomes.detector),
            "images": len(self.images),
            "links": self._links,
        }
        return key_of(paths, params)

    def method_key(self, name: str, shared_key: str) -> str:
        """Cache key of `method`, with the key of `shared`, whose rows it refers to."""
        files = self.outcomes.files
        split = self.outcomes.split
        paths = [
            files.scores(name, split),
            files.region_outcomes(name, split),
            files.object_outcomes(name, split),
        ]
        return key_of(paths, {"shared": shared_key, "tau": self.outcomes.tau(name)})

    def shared(self) -> dict[str, Any]:
        """The data that all methods share, ready for JSON."""
        outcomes = self.outcomes
        objects = self._with_image_rows(outcomes.objects)
        detections = self._with_image_rows(outcomes.detections)
        categories = objects["category"].unique().sort().to_list()
        if len(categories) > PARTS:
            raise DataError(
                f"{len(categories)} categories; the gallery shows at most {PARTS}", field="category"
            )
        confidence = np.rint(detections["confidence"].to_numpy() * PARTS)
        proposals = {}
        for source, rows in outcomes.proposals.items():
            proposals[source] = self._proposals(rows, objects)
        return {
            "of": self.image_count,
            **self._files(),
            "accepting": self._accepting(),
            "categories": categories,
            "objects": {
                "image": packed_integers(objects["image"]),
                "box": _boxes(objects),
                "category": packed_integers(_positions(objects["category"], categories)),
                "crowd": packed_integers(objects["is_crowd"]),
            },
            "subsets": self._subsets(objects),
            "classes": list(outcomes.classes),
            "detections": {
                "image": packed_integers(detections["image"]),
                "box": _boxes(detections),
                "label": packed_integers(detections["label"]),
                "confidence": packed_integers(confidence),
            },
            "proposals": proposals,
        }

    def method(self, name: str) -> dict[str, Any]:
        """The outcomes of a method, ready for JSON."""
        detections = self.outcomes.detections_of(name)
        objects = self.outcomes.objects_of(name)
        row_in_image = self._rows_in_images
        deciding = objects.join(row_in_image, on=REGION, how="left", maintain_order="left")
        decided = deciding["row"].fill_null(NO_ROW)
        return {
            "tau": self.outcomes.tau(name),
            "score": packed(detections["score"], "f"),
            "detection": packed_integers(_positions(detections["outcome"], REGION_OUTCOMES)),
            "object": packed_integers(_positions(objects["outcome"], OBJECT_OUTCOMES)),
            "decided": packed_integers(decided),
        }

    @cached_property
    def _rows_in_images(self) -> pl.DataFrame:
        """The row of each detection among those of its image."""
        row = pl.int_range(pl.len()).over("image_id").alias("row")
        return self.outcomes.detections.select(*REGION, row)

    def _proposals(self, proposals: pl.DataFrame, objects: pl.DataFrame) -> dict[str, str]:
        proposals = self._with_image_rows(proposals)
        row_of_object = objects.select("object_id", row=pl.int_range(pl.len()))
        finding = proposals.join(row_of_object, on="object_id", how="left", maintain_order="left")
        return {
            "image": packed_integers(proposals["image"]),
            "box": _boxes(proposals),
            "objectness": packed(proposals["objectness"], "f"),
            "object": packed_integers(finding["row"].fill_null(NO_ROW)),
        }

    def _subsets(self, objects: pl.DataFrame) -> list[dict[str, Any]]:
        """Sizes of the objects, and the images' attributes."""
        sizes = pl.Series(sizes_of(objects["box"].to_numpy()), dtype=pl.String)
        subsets = [_subset("size", "object", sizes)]
        attributes = self.outcomes.attributes
        for name in attributes["attribute"].unique().sort():
            values = attributes.filter(attribute=name).select("image_id", "value")
            of_images = self.images.join(values, on="image_id", how="left", maintain_order="left")
            subsets.append(_subset(name, "image", of_images["value"].fill_null(NO_VALUE)))
        return subsets

    def _accepting(self) -> dict[str, Any] | None:
        detector = self.outcomes.self_aware
        if detector is None:
            return None
        uncertainties = self.images.join(
            self.outcomes.uncertainty(detector), on="image_id", how="left", maintain_order="left"
        )
        return {
            "threshold": detector.image_threshold,
            "uncertainty": packed(uncertainties["uncertainty"], "d"),
        }

    def _with_image_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of images that are taken, with the image's row and size."""
        return rows.join(self._image_rows, on="image_id", how="inner", maintain_order="left")

    def _files(self) -> dict[str, Any]:
        images = self.images
        datasets = images["dataset"].unique().sort().to_list()
        urls = []
        for dataset, file in images.select("dataset", "file").iter_rows():
            urls.append(_url(self._roots.get(dataset, Path()), file))
        return {
            # None where params.yaml does not name the dataset's folder.
            "roots": [self._links.get(dataset) for dataset in datasets],
            "images": {
                "id": images["image_id"].to_list(),
                "file": _shortened(urls, images["image_id"]),
                "root": packed_integers(_positions(images["dataset"], datasets)),
                "width": packed_integers(images["width"]),
                "height": packed_integers(images["height"]),
            },
        }


def _subset(name: str, of: str, values: pl.Series) -> dict[str, Any]:
    ordered_values = values.unique().sort().to_list()
    codes = packed_integers(_positions(values, ordered_values))
    return {"name": name, "of": of, "values": ordered_values, "codes": codes}


def is_elsewhere(root: Path, project: Path) -> bool:
    """Whether a folder is given by an absolute path outside the project, as one machine has it."""
    return root.is_absolute() and not root.is_relative_to(project)


def folder_url(root: Path, project: Path) -> str:
    """URL of a folder of image files, for a page of the report.

    It does not depend on where the project is: a folder that is given relative to the project has a
    relative URL, and another one its absolute path.

    Args:
        root: The folder.
        project: The project's folder, which holds `artifacts/report`.

    >>> folder_url(Path("data/my photos"), Path()), folder_url(Path("../photos"), Path())
    ('../../data/my%20photos', '../../../photos')
    >>> folder_url(Path("/data/voc"), Path())
    'file:///data/voc'
    """
    if is_elsewhere(root, project):
        return root.as_uri()
    within = root
    if root.is_relative_to(project):
        within = root.relative_to(project)
    return quote(posixpath.normpath(posixpath.join("../..", within.as_posix())))


def _evenly_spread(images: pl.DataFrame, limit: int) -> pl.DataFrame:
    """At most `limit` rows, evenly spread over the table."""
    count = len(images)
    if count <= limit:
        return images
    rows = np.arange(limit) * count // limit
    return images[rows.tolist()]


@cache
def _url(root: Path, file: str) -> str:
    """URL of a file relative to its dataset's folder; all runs on a benchmark share the files."""
    return quote(inside(root, file).relative_to(root).as_posix())


def _shortened(urls: list[str], names: Iterable[str]) -> list[str] | str:
    """The URLs of images, or one text for all, in which * stands for the image's name.

    >>> _shortened(["val/a.jpg", "val/b%201.jpg"], ["a", "b 1"])
    'val/*.jpg'
    """
    patterns = set()
    for url, name in zip(urls, names, strict=True):
        # A URL has no asterisk, as `quote` escapes it.
        stem, dot, suffix = url.rpartition(".")
        if not stem.endswith(quote(name)):
            return urls
        patterns.add(f"{stem.removesuffix(quote(name))}*{dot}{suffix}")
    if len(patterns) == 1:
        return patterns.pop()
    return urls


def _positions(names: pl.Series, ordered_names: Iterable[str]) -> pl.Series:
    """The position of each name in a list."""
    return names.cast(pl.Enum(list(ordered_names))).to_physical()


def _boxes(rows: pl.DataFrame) -> str:
    """The boxes, shape (N, 4), in parts of their images' sides."""
    sides = rows.select(pl.col("width", "height").clip(lower_bound=1)).to_numpy()
    parts = np.rint(rows["box"].to_numpy() / np.hstack([sides, sides]) * PARTS)
    return packed_integers(np.clip(parts, 0, PARTS))
