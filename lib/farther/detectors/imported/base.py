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

from farther.detectors.adapter import Adapter, Fraction
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.arrays import read_arrays
from farther.tables.files import digest

#: Largest difference between logits and features @ weight.T + bias, relative to the largest logit.
#: It allows for float16.
LAST_LAYER_TOLERANCE = 0.05


@plain_dataclass(frozen=True)
class DetectionsSource:
    """One file of detections, or one folder of such files.

    Of several sources, one with the name of a split of the benchmark is for that split only; one
    with the name of a dataset is for the images of that dataset; any other is for all images.

    Args:
        name: The file's name without its ending, or the folder's name; "" where there is only this
            source.
        path: The file or folder.
        image_files: Image files, relative to a dataset's folder, if the source names images by
            their place in this list; None if it names them by the `image_id` of the tables, or by
            their files.
        named: "file" if names are those of files, with or without ending, and not ids.
    """

    name: str
    path: Path
    image_files: tuple[str, ...] | None = field(default=None, repr=False, compare=False)
    named: Literal["id", "file"] = field(default="id", kw_only=True)

    def file_of(self, name: str) -> str:
        """The image file of a name, as `plain_path` writes it."""
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
    """Base of the readers of other programs' detections: no network runs, and no image is read.

    Args:
        weights: The file of detections, or a folder of such files.
        score_threshold: Detections below this score are left out. Include the threshold of the
            other program: no operating threshold below it is tried later.
        score_tolerance: Largest difference between a score and the softmax or sigmoid of the logit
            of its class. None for a detector whose scores are computed in another way.
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
        """The files or folders with the detections.

        Raises:
            DataError: there are none, or one of the files that describe them is absent or damaged.
        """

    @abstractmethod
    def batches(self, source: DetectionsSource) -> Iterator[DetectionBatch]:
        """Yields the detections of a source in batches of some thousand, in stored order.

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
        """Identity of the detections, as JSON: adapter, digest of all files, and parameters.

        Raises:
            DataError: a file is absent.
        """
        params = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weights"}
        names_and_files: list[str | Path] = []
        for file in self.files():
            names_and_files += [file.name, file]
        return {
            "name": self.name,
            "weights_digest": digest(*names_and_files),
            "params": json.loads(json.dumps(params, default=str)),
        }

    def layer(self) -> dict[str, np.ndarray]:
        """`weight` and `bias` of the last layer; empty without one.

        Raises:
            DataError: the file is absent or damaged, or lacks one of them.
        """
        if self.last_layer is None:
            return {}
        tensors = read_arrays(self.last_layer)
        if set(tensors) != {"weight", "bias"}:
            problem = f"expected the tensors 'weight' and 'bias', found {sorted(tensors)}"
            raise DataError(problem, file=self.last_layer)
        return tensors

    def checked(self, header: Header, columns: dict[str, Any], location: RowLocation) -> Regions:
        """The regions table of some rows, after all checks; `region_id` is 0 in all rows.

        Args:
            header: Header of the regions.
            columns: The columns except `region_id`.
            location: Location of the first row, for messages.

        Raises:
            DataError: a value is impossible, or values contradict each other; names file, row and
                field.
        """
        region_id = np.zeros(len(columns["image_id"]), np.int64)
        try:
            regions = Regions(header=header, region_id=region_id, **columns)
            check_scores(regions, self.score_tolerance)
            check_last_layer(regions)
        except DataError as error:
            raise location.error(error, self.FIELDS) from None
        return regions


@plain_dataclass(frozen=True)
class RowLocation:
    """Location of a batch of rows: the file, and the number of the first row."""

    file: Path
    first: int

    def error(self, error: DataError, names: dict[str, str] | None = None) -> DataError:
        """The error with the row of the file instead of the batch's, and the file's own field.

        Args:
            error: An error about a row of the batch.
            names: Names of fields in the file, where they differ from those of the regions table.
        """
        row = None if error.row is None else self.first + int(error.row)
        field_name = (names or {}).get(error.field or "", error.field)
        return DataError(error.problem, file=self.file, row=row, field=field_name)


@plain_dataclass(frozen=True)
class DetectionBatch:
    """Rows of a source, and their location.

    Args:
        regions: The rows. If the source lists image files, `image_id` holds places in that list, as
            text.
        location: Location of the first row.
        oriented: Number of rows whose box is the envelope of an oriented box or an outline.
        unread: Names of columns or fields that are not read.
    """

    regions: Regions
    location: RowLocation
    oriented: int = 0
    unread: frozenset[str] = frozenset()


def check_scores(regions: Regions, tolerance: float | None) -> None:
    """Refuses scores outside 0 to 1, and scores that their logits contradict.

    Args:
        regions: The rows.
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
    expected = probability(regions)
    wrong = np.flatnonzero(np.abs(expected - score) > tolerance)
    if len(wrong):
        row = int(wrong[0])
        name = regions.classes[regions.label[row]]
        problem = (
            f"{score[row]:.4g}, but the {regions.activation} of the logits gives "
            f"{expected[row]:.4g} for {name!r}. Check the parameters 'classes', 'background_index' "
            "and 'activation'; if the detector's scores are computed in another way, set "
            "'score_tolerance' to null"
        )
        raise DataError(problem, row=row, field="score")


def probability(regions: Regions) -> np.ndarray:
    """Probability of each row's class, ndarray of shape (N,), float64.

    It is computed from the logits by the header's activation.
    """
    logits = regions.logits.astype(np.float64)
    class_logit = logits[np.arange(len(logits)), regions.label]
    if regions.activation == "exp":
        return np.exp(class_logit)
    if regions.activation == "sigmoid":
        return np.exp(-np.logaddexp(0, -class_logit))
    return np.exp(class_logit - np.logaddexp.reduce(logits, axis=1))


def check_last_layer(regions: Regions) -> None:
    """Refuses logits that are not the last layer's output for the features.

    Raises:
        DataError: names the first such row.
    """
    weight = regions.weight
    bias = regions.bias
    features = regions.features
    if weight is None or bias is None or features is None:
        return
    if not regions.has("logits") or not len(regions):
        return
    expected = features.astype(np.float32) @ weight.T + bias
    largest = np.maximum(np.abs(regions.logits).max(axis=1), 1)
    difference = np.abs(expected - regions.logits).max(axis=1)
    wrong = np.flatnonzero(difference > LAST_LAYER_TOLERANCE * largest)
    if len(wrong):
        row = int(wrong[0])
        problem = (
            f"features @ weight.T + bias is up to {difference[row]:.3g} away from the logits: not "
            "their last layer"
        )
        raise DataError(problem, row=row, field="features")
