"""The header of a regions table: everything that its rows share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field
from safetensors.numpy import save_file

from farther.errors import DataError, shorten
from farther.tables.arguments import (
    array_of,
    class_names,
    floats,
    integers,
    number,
    whole_number,
)
from farther.tables.arrays import read_arrays
from farther.tables.files import digest, is_present
from farther.tables.schema import Schema, check
from farther.tables.writing import write_aside

#: The file of the last layer in a regions folder.
LAST_LAYER = "last_layer.safetensors"
#: "exp" where the stored logits are logarithms of the scores.
Activation = Literal["softmax", "sigmoid", "exp"]


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The same names, but one that occurs twice gets its number in the list.

    ImageNet has two cranes, and ten of the 91 outputs of networks for COCO are called N/A.

    >>> unique_names(["N/A", "person", "N/A"])
    ('N/A 0', 'person', 'N/A 2')
    """
    count = Counter(names)
    numbered_names = []
    for index, name in enumerate(names):
        if count[name] > 1:
            name = f"{name} {index}"
        numbered_names.append(name)
    return tuple(numbered_names)


@dataclass(frozen=True)
class Header:
    """Everything that the rows of a regions table share.

    Args:
        classes: Name of each logits column, K of them; with those of the background and of unknown
            objects, if any.
        background_index: Logits column of "no object", None where the head has none.
        activation: Function from logits to the detector's scores.
        score_threshold: Detections below this score were not stored.
        unknown_columns: Logits columns of classes that mean an unknown object, as of open-world
            detectors and of negative prompts; a detection may have one as its label.
        whole_images: True for image classifiers: the only region of an image is the whole image,
            and t* is 0.
        detector: Origin of the rows: name, parameters, checkpoint digest.
        are_observed: True where `classes` are those that occur in the rows, and the detector may
            have others.
        weight: Last linear layer, ndarray of shape (K, D), so that features @ weight.T + bias =
            logits; or None.
        bias: ndarray of shape (K,), or None.
        passes: Headers of the passes whose columns the rows have beside their own, by the pass's
            name; see `Regions.of_pass`. They are not stored.

    Raises:
        DataError: the fields contradict each other.
    """

    classes: tuple[str, ...]
    background_index: int | None = None
    activation: Activation = "softmax"
    score_threshold: float = 0.0
    whole_images: bool = False
    unknown_columns: tuple[int, ...] = ()
    detector: dict[str, Any] = field(default_factory=dict)
    are_observed: bool = False
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None
    passes: Mapping[str, Header] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(class_names(self.classes)))
        unknown_columns = integers(self.unknown_columns, "unknown_columns").tolist()
        object.__setattr__(self, "unknown_columns", tuple(sorted(unknown_columns)))
        if self.background_index is not None:
            background = whole_number(self.background_index, "background_index")
            object.__setattr__(self, "background_index", background)
        score_threshold = number(self.score_threshold, "score_threshold")
        object.__setattr__(self, "score_threshold", float(score_threshold))
        self._check_classes()
        if self.activation not in get_args(Activation):
            known = ", ".join(get_args(Activation))
            raise DataError(f"expected {known}, found {self.activation!r}", field="activation")
        self._check_columns()
        if self.whole_images:
            self._check_whole_images()
        if (self.weight is None) != (self.bias is None):
            raise DataError("weight and bias of the last layer come together", field="bias")
        if self.weight is not None and self.bias is not None:
            self._check_last_layer(array_of(self.weight, "weight"), array_of(self.bias, "bias"))
            weight = floats(self.weight, "weight", shape=(None, None), dtype=np.float32)
            bias = floats(self.bias, "bias", dtype=np.float32)
            object.__setattr__(self, "weight", weight)
            object.__setattr__(self, "bias", bias)

    def _check_classes(self) -> None:
        """Refuses a class name that occurs twice."""
        if len(set(self.classes)) == len(self.classes):
            return
        repeated = next(name for name in self.classes if self.classes.count(name) > 1)
        problem = f"the class {repeated!r} is listed twice in {shorten(list(self.classes))}"
        advice = f"give each a name of its own, as '{repeated} 1'"
        raise DataError(f"{problem}: {advice}", field="classes")

    def _check_columns(self) -> None:
        """Refuses columns of the background and of unknown objects that do not exist."""
        count = len(self.classes)
        background = self.background_index
        if background is not None and not 0 <= background < count:
            problem = f"expected 0 … {count - 1}, found {background}"
            raise DataError(problem, field="background_index")
        allowed = set(range(count)) - {background}
        if len(set(self.unknown_columns) & allowed) != len(self.unknown_columns):
            problem = (
                f"expected different columns from 0 to {count - 1} that are not the background's, "
                f"found {list(self.unknown_columns)}"
            )
            raise DataError(problem, field="unknown_columns")

    def _check_whole_images(self) -> None:
        """Refuses what a classifier of whole images cannot have."""
        if self.background_index is None and self.score_threshold <= 0:
            return
        values = (
            f"background_index {self.background_index} and score_threshold {self.score_threshold:g}"
        )
        problem = (
            "a classifier of whole images has no background and keeps each image, found " + values
        )
        raise DataError(problem, field="whole_images")

    def _check_last_layer(self, weight: np.ndarray, bias: np.ndarray) -> None:
        """Refuses a last layer without one row of `weight` and one value of `bias` per class."""
        count = len(self.classes)
        expected = f"expected {count}, one per class, found shape"
        if weight.ndim != 2 or len(weight) != count:
            raise DataError(f"{expected} {weight.shape}", field="weight")
        if bias.shape != (count,):
            raise DataError(f"{expected} {bias.shape}", field="bias")

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The classes that the detector was trained on: without background and unknown ones."""
        not_known = {self.background_index, *self.unknown_columns}
        columns = enumerate(self.classes)
        return tuple(name for column, name in columns if column not in not_known)

    def columns_of_classes(self) -> dict[str, Any]:
        """The meaning of each logits column, as JSON.

        Returns:
            `classes`, `background_index` and `unknown_columns`.
        """
        return {
            "classes": list(self.classes),
            "background_index": self.background_index,
            "unknown_columns": list(self.unknown_columns),
        }

    def column_of(self, other: Header) -> np.ndarray:
        """This header's logits column of each class of another header.

        Args:
            other: With K classes; those that this header does not have have the column 0.

        Returns:
            ndarray of shape (K,), int16.
        """
        column_by_class = {name: column for column, name in enumerate(self.classes)}
        columns = [column_by_class.get(name, 0) for name in other.classes]
        return np.array(columns, dtype=np.int16)

    def to_json(self) -> dict[str, Any]:
        """All but the last layer and the headers of passes, as JSON."""
        left_out = ("weight", "bias", "passes")
        names = [field.name for field in fields(self) if field.name not in left_out]
        values = {name: getattr(self, name) for name in names}
        if not self.are_observed:  # so that files of others stay as they were
            del values["are_observed"]
        return {**values, **self.columns_of_classes()}

    def layer_digest(self) -> str:
        """Digest of weight and bias, empty without them."""
        if self.weight is None or self.bias is None:
            return ""
        return digest(str(self.weight.shape), self.weight.tobytes(), self.bias.tobytes())

    def write_last_layer(self, folder: Path) -> None:
        """Writes `last_layer.safetensors` where there is a last layer."""
        if self.weight is None or self.bias is None:
            return
        # safetensors writes the bytes in memory order: a transposed view would come back as another
        # matrix.
        layer = {
            "weight": np.ascontiguousarray(self.weight),
            "bias": np.ascontiguousarray(self.bias),
        }
        with write_aside(folder / LAST_LAYER) as aside:
            save_file(layer, aside)

    @classmethod
    def from_json(cls, values: dict[str, Any], folder: Path, source: Path) -> Header:
        """Inverse of `to_json`, with the last layer that `write_last_layer` wrote into the folder.

        Further fields in `values` are not read.

        Raises:
            DataError: a field of the file `source` is missing, wrong, or contradicts the last
                layer.
        """
        info = check(HeaderInfo, values, source)
        layer = _read_last_layer(folder / LAST_LAYER)
        try:
            fields_of_info = {name: getattr(info, name) for name in HeaderInfo.model_fields}
            return cls(**fields_of_info, weight=layer.get("weight"), bias=layer.get("bias"))
        except DataError as error:
            raise DataError(error.problem, file=source, field=error.field) from None


class HeaderInfo(Schema):
    """Fields and types of the JSON of a header; see `Header.to_json`."""

    classes: list[str]
    background_index: int | None
    activation: str
    score_threshold: float
    whole_images: bool = False  # folders written before have neither this field nor the next
    unknown_columns: list[int] = Field(default_factory=list)
    detector: dict[str, Any]
    are_observed: bool = False


def _read_last_layer(file: Path) -> dict[str, np.ndarray]:
    """The arrays of `last_layer.safetensors`; none where the folder has no such file."""
    if not is_present(file):
        return {}
    layer = read_arrays(file)
    for name, array in layer.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            problem = f"expected finite numbers, found {array.dtype} values"
            raise DataError(problem, file=file, field=name)
    return layer


class WithHeader:
    """Base of classes with a header: its fields as attributes."""

    header: Header

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each logits column, the background included."""
        return self.header.classes

    @property
    def background_index(self) -> int | None:
        """Logits column of the background, None where there is none."""
        return self.header.background_index

    @property
    def activation(self) -> Activation:
        """Function from logits to the detector's scores."""
        return self.header.activation

    @property
    def weight(self) -> np.ndarray | None:
        """Last layer's weight, shape (K, D)."""
        return self.header.weight

    @property
    def bias(self) -> np.ndarray | None:
        """Last layer's bias, shape (K,)."""
        return self.header.bias
