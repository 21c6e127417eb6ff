"""Base class of readers of other programs' detections, and their checks."""

from __future__ import annotations

import json
import unicodedata
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Adapter, Fraction
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.arrays import read_arrays
from farther.tables.files import digest

#: Largest difference between logits and features @ weight.T + bias, as a part of the largest logit.
#: Room for float16.
LAST_LAYER_TOLERANCE = 0.05


@plain_dataclass(frozen=True)
class DetectionsSource:
    """One file of detections, or one folder of such files.

    One of several sources that is called as a split of the benchmark serves that split alone; one
    that is called as a dataset serves the images of that dataset; any other serves all images.

    Args:
        name: The file's name without its ending, or the folder's name; "" where there is only this
            source.
        path: Where it lies.
        image_files: Image files, relative to a dataset's folder, where the source names images by
            their place in this list; None where it names them by the `image_id` of the tables, or
            by their files.
        named: "file" where names are those of files, with or without ending, and not ids.
    """

    name: str
    path: Path
    image_files: tuple[str, ...] | None = field(default=None, repr=False, compare=False)
    named: Literal["id", "file"] = field(default="id", kw_only=True)

    def file_of(self, name: str) -> str:
        """The image file that a name of an image stands for, as `plain_path` writes it."""
        if self.image_files is not None:
            return plain_path(self.image_files[int(name)])
        return plain_path(name)


def plain_path(name: str) -> str:
    """A path with forward slashes and composed characters, as every system writes it.

    >>> plain_path("images\\\\zebra.jpg")
    'images/zebra.jpg'
    """
    name = name.replace("\\", "/")
    if name.isascii():
        return name
    return unicodedata.normalize("NFC", name)


@dataclass(config=STRICT, kw_only=True)
class Imported(Adapter):
    """Detections of another program: no network runs, and no image is read.

    Args:
        weights: The file of detections, or a folder of such files.
        score_threshold: Detections below this score are left out. Include the threshold of the
            other program: no operating threshold below it is tried later.
        score_tolerance: Largest difference between a score and the softmax or sigmoid of the logit
            of its class. None for a detector whose scores are computed otherwise.
        last_layer: A safetensors file with `weight` (K×D) and `bias` (K) of the last linear layer.
    """

    score_threshold: Fraction = 0.0
    score_tolerance: Annotated[float, Field(ge=0, le=1)] | None = 0.01
    last_layer: Path | None = None

    #: Names of columns in the files, where they differ from those of the regions table.
    FIELDS: ClassVar[dict[str, str]] = {}

    @property
    def in_fractions(self) -> bool:
        """Whether boxes are fractions of the image's width and height, not pixels."""
        return False

    @abstractmethod
    def sources(self) -> list[DetectionsSource]:
        """The files or folders that the detections lie in.

        Raises:
            DataError: there is none, or one of the files that describe them is absent or damaged.
        """

    @abstractmethod
    def batches(self, source: DetectionsSource) -> Iterator[Placed]:
        """The detections of a source, some thousand at a time, in stored order.

        Raises:
            DataError: a row is wrong; names file, row and field.
        """

    @abstractmethod
    def files(self) -> list[Path]:
        """All files that the regions depend on, in an order that does not change.

        Raises:
            DataError: one of them is absent.
        """

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Where the numbers come from: adapter, content of all files, and every parameter.

        Raises:
            DataError: a file is absent.
        """
        params = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weights"}
        content = digest(*(part for file in self.files() for part in (file.name, file)))
        return {
            "name": self.name,
            "weights_digest": content,
            "params": json.loads(json.dumps(params, default=str)),
        }

    def layer(self) -> dict[str, np.ndarray]:
        """`weight` and `bias` of the last layer; empty without one.

        Raises:
            DataError: the file is absent or damaged, or lacks one of them.
        """
        if self.last_layer is None:
            return {}
        found = read_arrays(self.last_layer)
        if set(found) != {"weight", "bias"}:
            problem = f"expected the tensors 'weight' and 'bias', found {sorted(found)}"
            raise DataError(problem, file=self.last_layer)
        return found

    def checked(self, header: Header, columns: dict[str, Any], place: Place) -> Regions:
        """The regions table of some rows, every value checked; numbers of regions are all 0.

        Raises:
            DataError: a value cannot be, or values contradict each other; names file, row and
                field.
        """
        try:
            regions = Regions(
                header=header, region_id=np.zeros(len(columns["image_id"]), np.int64), **columns
            )
            check_scores(regions, self.score_tolerance)
            check_last_layer(regions)
        except DataError as error:
            raise place.error(error, self.FIELDS) from None
        return regions


@plain_dataclass(frozen=True)
class Place:
    """Place of a batch of rows: the file, and the number of the first row."""

    file: Path
    first: int

    def error(self, error: DataError, names: dict[str, str] | None = None) -> DataError:
        """The same error, about a row of the file instead of one of the batch, and the file's own field."""
        row = None if error.row is None else self.first + int(error.row)
        name = (names or {}).get(error.field or "", error.field)
        return DataError(error.problem, file=self.file, row=row, field=name)


@plain_dataclass(frozen=True)
class Placed:
    """Rows of a source, and their place.

    Args:
        regions: The rows. Where the source lists image files, `image_id` holds places in that list,
            as text.
        place: Of the first row.
    """

    regions: Regions
    place: Place


def check_scores(regions: Regions, tolerance: float | None) -> None:
    """Refuses scores outside 0 to 1, or that their logits contradict.

    Args:
        tolerance: See `Imported.score_tolerance`.

    Raises:
        DataError: names the first such row.
    """
    score = regions.score
    wrong = np.flatnonzero((score < 0) | (score > 1))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"expected 0 to 1, found {score[row]:g}", row=row, field="score")
    if tolerance is None or not regions.has("logits") or not len(regions):
        return
    said = probability(regions)
    wrong = np.flatnonzero(np.abs(said - score) > tolerance)
    if len(wrong):
        row = int(wrong[0])
        name = regions.classes[regions.label[row]]
        problem = (
            f"{score[row]:.4g}, but the {regions.activation} of the logits gives {said[row]:.4g} for {name!r}. Check "
            "the parameters 'classes', 'background_index' and 'activation'; if the detector's scores are computed in "
            "another way, set 'score_tolerance' to null"
        )
        raise DataError(problem, row=row, field="score")


def probability(regions: Regions) -> np.ndarray:
    """Probability of each row's class by its logits and the header's activation, ndarray of shape (N,), float64."""
    logits = regions.logits.astype(np.float64)
    own = logits[np.arange(len(logits)), regions.label]
    if regions.activation == "exp":
        return np.exp(own)
    if regions.activation == "sigmoid":
        return np.exp(-np.logaddexp(0, -own))
    return np.exp(own - np.logaddexp.reduce(logits, axis=1))


def check_last_layer(regions: Regions) -> None:
    """Refuses logits that are not the last layer's output for the features.

    Raises:
        DataError: names the first such row.
    """
    weight, bias, features = regions.weight, regions.bias, regions.features
    if (
        weight is None
        or bias is None
        or features is None
        or not regions.has("logits")
        or not len(regions)
    ):
        return
    made = features.astype(np.float32) @ weight.T + bias
    largest = np.maximum(np.abs(regions.logits).max(axis=1), 1)
    apart = np.abs(made - regions.logits).max(axis=1)
    wrong = np.flatnonzero(apart > LAST_LAYER_TOLERANCE * largest)
    if len(wrong):
        row = int(wrong[0])
        problem = f"features @ weight.T + bias is up to {apart[row]:.3g} away from the logits: not their last layer"
        raise DataError(problem, row=row, field="features")
