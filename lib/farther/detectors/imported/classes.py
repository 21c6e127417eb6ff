"""Base class of readers of detections whose classes are named or numbered one by one."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from pydantic.dataclasses import dataclass

from farther.detectors.imported.base import Imported
from farther.errors import ParameterError, shorten
from farther.naming.registry import STRICT
from farther.tables import Header
from farther.tables.header import Activation


@dataclass(config=STRICT, kw_only=True)
class ImportedClasses(Imported):
    """Detections with one class each, a name or a number.

    Args:
        weights, score_threshold, score_tolerance, last_layer: See `Imported`.
        categories: Name of the class of each number; a class that is text is always the name
            itself.
        classes: Name of each value of `logits`, in order; by default, the categories by ascending
            number.
        background_index: Number of the class "no object".
        activation: Converts the logits to the scores.
    """

    categories: dict[int, str] | Path | None = None
    classes: tuple[str, ...] | None = None
    background_index: int | None = None
    activation: Activation = "softmax"

    def header(self) -> Header:
        """See `Adapter.header`."""
        classes = self.classes
        if not classes:
            classes = tuple(name for _, name in sorted(self._names.items()))
        if not classes:
            raise ParameterError(
                f"detector {self.name!r}: give the parameter 'classes' or 'categories'"
            )
        for name in classes:
            if classes.count(name) > 1:
                problem = f"the class {name!r} is named twice in {shorten(list(classes))}"
                raise ParameterError(
                    f"detector {self.name!r}: {problem}; give each a name of its own, as '{name} 1'"
                )
        layer = self.layer()
        return Header(
            classes=classes,
            background_index=self.background_index,
            activation=self.activation,
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=layer.get("weight"),
            bias=layer.get("bias"),
        )

    @cached_property
    def _names(self) -> dict[int, str]:
        """Name of each category, by its number."""
        return self.categories if isinstance(self.categories, dict) else {}

    def labels(self, header: Header) -> dict[int | str, int]:
        """Number of the class of each category, by the category's name and number."""
        labels: dict[int | str, int] = {name: k for k, name in enumerate(header.classes)}
        if header.background_index is not None:
            del labels[header.classes[header.background_index]]
        for number, name in self._names.items():
            if name in labels:
                labels[number] = labels[name]
        return labels
