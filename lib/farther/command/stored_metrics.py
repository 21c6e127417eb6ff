"""Metrics of runs as a folder, a file or a commit has them, with the evaluations that they are from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from farther.command.committed import COUNTS, METRICS, read_commit, read_folder
from farther.errors import DataError, FartherError, ParameterError

if TYPE_CHECKING:
    from farther.evaluation.paired import Replicates, StoredEvaluation

DETECTOR = "detector.json"


class Subject(NamedTuple):
    """The run, split and method that a file of metrics is about.

    "" where it is about all splits, or all methods.
    """

    run: str
    split: str
    method: str

    def __str__(self) -> str:
        return "/".join(filter(None, self))


Values = Mapping[Subject, Mapping[str, float | None]]


class StoredMetrics:
    """Metrics of runs.

    Args:
        name: Of the folder, file or commit, as users call it.
        values: The metrics.
        root: A folder laid out as `artifacts/`, where the evaluations are; None where there are
            none.
    """

    def __init__(self, name: str, values: Values, root: Path | None = None):
        self.name = name
        self.values = values
        self._root = root
        self._evaluations: dict[str, StoredEvaluation] = {}

    def artifacts(self, name: str) -> Path:
        """A folder laid out as `artifacts/` that has this file or folder.

        Raises DataError where there is none.
        """
        if self._root is None:
            raise DataError(f"a single file of metrics has no {name} beside it", file=self.name)
        if not (self._root / name).exists():
            raise DataError("not beside the metrics", file=self._root / name)
        return self._root

    def evaluation(self, run: str) -> StoredEvaluation:
        """The evaluation of a run."""
        from farther.evaluation.paired import StoredEvaluation

        if run not in self._evaluations:
            self._evaluations[run] = StoredEvaluation(self.artifacts(f"evaluation/{run}.json"), run)
        return self._evaluations[run]

    def replicates(self, subject: Subject) -> Replicates:
        """Bootstrap replicates of a method's metrics in a split."""
        evaluation = self.evaluation(subject.run)
        self.artifacts(f"evaluation/{subject.run}")
        return evaluation.replicates(subject.method, subject.split)

    def interval(self, subject: Subject, metric: str) -> tuple[float, float] | None:
        """A metric's own interval; None where there is no evaluation."""
        from farther.metrics.catalogue import METRICS as CATALOGUE

        try:
            methods = self.evaluation(subject.run).report.methods
            return methods[subject.method].splits[subject.split].interval(CATALOGUE[metric])
        except (FartherError, KeyError):
            return None


class MetricsOfCommit(StoredMetrics):
    """Metrics of a commit, by any name that git knows.

    Its evaluations come from DVC's cache or remote.
    """

    def __init__(self, name: str, folder: Path):
        files = read_commit(folder, name, [METRICS])
        super().__init__(name, _of_runs(files, METRICS, name))
        self._folder = folder
        self._copy = tempfile.TemporaryDirectory(prefix="farther-compare-")
        self._fetched: dict[str, DataError | None] = {}

    def artifacts(self, name: str) -> Path:
        """See `StoredMetrics.artifacts`."""
        if name not in self._fetched:
            self._fetched[name] = self._fetch(name)
        if (problem := self._fetched[name]) is not None:
            raise problem
        return Path(self._copy.name)

    @cached_property
    def _dvc(self) -> Any:
        from dvc.api import DVCFileSystem

        return DVCFileSystem(str(self._folder), rev=self.name)

    def _fetch(self, name: str) -> DataError | None:
        """Copies an output of the commit.

        Returns the error where neither cache nor remote has it.
        """
        from dvc.exceptions import DvcException

        from farther.tables.files import inside

        to = inside(Path(self._copy.name), name)
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._dvc.get(f"artifacts/{name}", str(to), recursive=True)
        except (OSError, DvcException) as error:
            advice = "`dvc fetch --all-commits` may bring it"
            problem = f"{self.name}: not in DVC's cache, nor on its remote: {advice} ({error})"
            return DataError(problem, file=f"artifacts/{name}")
        return None


def open_metrics(name: str, folder: Path) -> StoredMetrics:
    """The metrics that a user names: "workspace" (the project's `folder`), an existing path, else a git revision.

    A folder is `artifacts/metrics`, `artifacts`, a project's, or a run's folder of metrics.
    """
    path = folder if name == "workspace" else Path(name)
    if path.is_file():
        text = read_folder(path.parent, [path.name])[path.name]
        return StoredMetrics(name, {Subject("", "", ""): numbers(text, name)})
    if path.is_dir():
        root = next(one for one in (path / METRICS, path / "metrics", path) if one.is_dir())
        run = ""
        if (root / DETECTOR).is_file():
            root, run = root.parent, root.name
        return StoredMetrics(name, _of_runs(read_folder(root, [run]), "", name), root.parent)
    try:
        return MetricsOfCommit(name, folder)
    except ParameterError:
        raise ParameterError(
            f"{name!r} is not a file, a folder, or a revision that git knows here"
        ) from None


def since_commit(folder: Path) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """(file, name) of each metric and count → its value in the last commit, and in the project's files as they are.

    Nothing outside of git, and where the last commit has no metrics.
    """
    try:
        metrics, counts = (read_commit(folder, "HEAD", [place]) for place in (METRICS, COUNTS))
    except ParameterError:  # not under git, or no git on this machine
        return {}
    if not metrics:
        return {}
    before, after = (
        {
            (file, name): value
            for file, text in texts.items()
            for name, value in numbers(text, file).items()
        }
        for texts in (metrics | counts, read_folder(folder, [METRICS, COUNTS]))
    )
    return {key: (before.get(key), after.get(key)) for key in {**before, **after}}


def numbers(text: bytes, source: str) -> dict[str, float | None]:
    """The numbers of a JSON object; nested ones by their path.

    >>> numbers(b'{"auroc": 0.5, "train": {"images": 3}, "name": "x"}', "a.json")
    {'auroc': 0.5, 'train.images': 3}
    """
    from farther.tables.documents import parse_json

    value = parse_json(text, source)
    if not isinstance(value, dict):
        raise DataError("expected metrics by name", file=source)
    return dict(_flat(value, ""))


def _flat(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float | None]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{name}.")
        elif item is None or (isinstance(item, (int, float)) and not isinstance(item, bool)):
            yield f"{prefix}{name}", item


def _of_runs(files: Mapping[str, bytes], root: str, name: str) -> Values:
    """The metrics in files below a folder; those of datasets and curation are not results."""
    paths = {PurePosixPath(path).relative_to(root): text for path, text in files.items()}
    runs = {path.parts[0] for path in paths if path.name == DETECTOR and len(path.parts) == 2}
    found = {}
    for path, text in paths.items():
        run, *split = path.parts[:-1] or ("",)
        # methods.json: means over splits, and errors on ID images; no replicates of them are stored
        if run in runs and len(split) < 2 and (split or path.name != "methods.json"):
            method = "" if path.name == DETECTOR else path.stem
            found[Subject(run, "".join(split), method)] = numbers(text, f"{name}: {path}")
    return found
