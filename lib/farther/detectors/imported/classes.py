"""Base class of readers of detections whose classes are named or numbered one by one."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from pydantic.dataclasses import dataclass

from farther.detectors.imported.base import Imported
from farther.errors import ParameterError, shorten
from farther.registry import STRICT
from farther.tables import Header
from farther.tables.header import Activation


@dataclass(config=STRICT, kw_only=True)
class ImportedClasses(Imported):
    """Detections that have a class each, by name or by number.

    Args:
        weights, score_threshold, score_tolerance, last_layer: See `Imported`.
        categories: Number → name of the class; a class that is text is always the name itself.
        classes: Name of each value of `logits`, in order; without, the categories by rising number.
        background_index: Which of them is "no object".
        activation: Turns the logits into the scores.
    """

    categories: dict[int, str] | Path | None = None
    classes: tuple[str, ...] | None = None
    background_index: int | None = None
    activation: Activation = "softmax"

    def header(self) -> Header:
        """See `Adapter.header`."""
        classes = self.classes or tuple(name for _, name in sorted(self._names.items()))
        if not classes:
            raise ParameterError(
                f"detector {self.name!r}: give the parameter 'classes' or 'categories'"
            )
        if len(set(classes)) < len(classes):
            twice = next(name for name in classes if classes.count(name) > 1)
            problem = f"the class {twice!r} is named twice in {shorten(list(classes))}"
            raise ParameterError(
                f"detector {self.name!r}: {problem}; give each a name of its own, as '{twice} 1'"
            )
        return Header(
            classes=classes,
            background_index=self.background_index,
            activation=self.activation,
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=self.layer().get("weight"),
            bias=self.layer().get("bias"),
        )

    @cached_property
    def _names(self) -> dict[int, str]:
        """Name of each category."""
        return self.categories if isinstance(self.categories, dict) else {}

    def _labels(self, header: Header) -> dict[int | str, int]:
        """Index into the classes of each category, by number and by name."""
        index = {name: k for k, name in enumerate(header.classes) if k != header.background_index}
        numbered = {number: index[name] for number, name in self._names.items() if name in index}
        return dict[int | str, int](index) | numbered
