"""Parts of an evaluation that are kept from run to run: one of the detector, one per method."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation import plots
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import Evaluated, Method
from farther.keyed import Keyed
from farther.metrics.user_defined import UserDefinedMetric
from farther.tables.files import digest, read_json, write_json

#: The kept part of the detector.
DETECTOR = "detector.json"


@dataclass(frozen=True)
class Part:
    """The kept part of a method.

    Args:
        results: see `farther.evaluation.methods.Evaluated`.
        frames: {kind of plot: rows}.
        replicates: {split: {metric: ndarray of shape (B,)}}.
    """

    results: dict[str, Any]
    frames: dict[str, pl.DataFrame]
    replicates: dict[str, dict[str, np.ndarray]]


class Parts:
    """The kept parts of a run; a part is computed again when its inputs, its parameters or its code changed.

    Args:
        inputs: The run's inputs.
        user_defined: The user-defined metrics.
        code: Digest of the code of metrics.

    Attributes:
        computed: Names of the parts that were computed.
    """

    def __init__(self, inputs: RunInputs, user_defined: Mapping[str, UserDefinedMetric], code: str):
        self._inputs = inputs
        self._user_defined = user_defined
        self._kept = Keyed(inputs.files.parts)
        self._outcomes = Keyed(inputs.files.outcomes)
        self.computed: list[str] = []
        # JSON, not repr: a number that YAML reads as 1 or 1.0 is one parameter.
        self._shared = digest(
            code,
            json.dumps(asdict(inputs.settings), sort_keys=True, default=str),
            repr(inputs.threshold),
            *(text for split in (inputs.id_split, *inputs.tested) for text in _key_of(split)),
        )

    def detector(self, compute: Callable[[RunInputs], dict[str, Any]]) -> dict[str, Any]:
        """The part of the detector; errors as in `compute`, or a kept file is damaged."""
        held_out = RunSplit(self._inputs.files, self._inputs.settings.calibration_split)
        key = digest(self._shared, *_key_of(held_out))
        if not self._kept.is_current(DETECTOR, key):
            with self._kept.make(DETECTOR, key) as path:
                write_json(path, compute(self._inputs))
            self.computed.append("the detector")
        found: dict[str, Any] = read_json(self._kept.path(DETECTOR))
        return found

    def method(
        self,
        method: Method,
        compute: Callable[[Method, RunInputs, Mapping[str, UserDefinedMetric]], Evaluated],
    ) -> Part:
        """The part of a method; errors as in `compute`, or a kept file is damaged."""
        files, item = self._inputs.files, f"methods/{method.name}"
        scores = [files.scores(method.name, s.name) for s in (self._inputs.id_split, *self._inputs.tested)]
        fitted = json.dumps(method.fitted, sort_keys=True)
        key = digest(self._shared, method.name, repr(method.tau), fitted, *(p for p in scores if p.is_file()))
        if not (self._kept.is_current(item, key) and self._outcomes.is_current(method.name, key)):
            evaluated = compute(method, self._inputs, self._user_defined)
            with self._outcomes.make(method.name, key) as folder:
                for split, (of_regions, of_objects) in evaluated.outcomes.items():
                    of_regions.write(folder / f"{split}.parquet")
                    of_objects.write(folder / f"{split}.objects.parquet")
            with self._kept.make(item, key) as folder:
                _write(folder, evaluated)
            self.computed.append(method.name)
        return _read(self._kept.path(item), [split.name for split in self._inputs.tested])

    def keep_only(self, methods: Sequence[str]) -> None:
        """Deletes the parts of all other methods."""
        self._kept.keep_only([DETECTOR, *(f"methods/{name}" for name in methods)])
        self._outcomes.keep_only(methods)


def _key_of(split: RunSplit) -> list[str]:
    return [split.name, json.dumps(split.folder.header.detector, sort_keys=True), *split.inputs().values()]


def _write(folder: Path, evaluated: Evaluated) -> None:
    write_json(folder / "results.json", evaluated.results)
    for kind, rows in evaluated.rows.items():
        plots.frame(kind, rows).write_parquet(folder / f"{kind}.parquet")
    for split, values in evaluated.replicates.items():
        pl.DataFrame(values).write_parquet(folder / f"{split}.replicates.parquet")


def _read(folder: Path, splits: Sequence[str]) -> Part:
    replicates = {split: pl.read_parquet(folder / f"{split}.replicates.parquet") for split in splits}
    return Part(
        results=read_json(folder / "results.json"),
        frames={kind: pl.read_parquet(folder / f"{kind}.parquet") for kind in plots.OF_METHODS},
        replicates={split: {column.name: column.to_numpy() for column in frame} for split, frame in replicates.items()},
    )
