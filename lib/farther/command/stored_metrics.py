"""Metrics of runs in a folder, a file or a commit, with the evaluations that they are from."""

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
Interval = tuple[float, float]


class StoredMetrics:
    """Metrics of runs.

    Args:
        name: The folder, file or commit, as users call it.
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
        """A folder laid out as `artifacts/` that has a file or folder.

        Args:
            name: The path below the folder.

        Raises:
            DataError: there is none.
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
            self.artifacts(f"results/{run}.parquet")
            root = self.artifacts(f"results/{run}.json")
            self._evaluations[run] = StoredEvaluation(root, run)
        return self._evaluations[run]

    def replicates(self, subject: Subject) -> Replicates:
        """Bootstrap replicates of a method's metrics in a split."""
        evaluation = self.evaluation(subject.run)
        self.artifacts(f"evaluation/{subject.run}")
        return evaluation.replicates(subject.method, subject.split)

    def interval(self, subject: Subject, metric: str) -> Interval | None:
        """A metric's own interval; None where there is no evaluation."""
        from farther.metrics.catalogue import METRICS as CATALOGUE

        try:
            evaluation = self.evaluation(subject.run)
            return evaluation.result(subject.split, subject.method, CATALOGUE[metric]).interval
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
        problem = self._fetched[name]
        if problem is not None:
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
        from farther.tables.files import inside

        copy = inside(Path(self._copy.name), name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._dvc.get(f"artifacts/{name}", str(copy), recursive=True)
        except Exception as error:  # DVC's own, and those of any kind of remote
            advice = "`dvc fetch --all-commits` may bring it"
            text = f"{self.name}: not in DVC's cache, nor on its remote: {advice} ({error})"
            return DataError(text, file=f"artifacts/{name}")
        return None


def open_metrics(name: str, folder: Path) -> StoredMetrics:
    """The metrics that a user names.

    Args:
        name: "workspace", an existing path, or else a git revision. A path may be a file, or
            `artifacts/metrics`, `artifacts`, a project's folder, or a run's folder of metrics.
        folder: The project's folder: the workspace, and where git looks for the revision.
    """
    path = folder if name == "workspace" else Path(name)
    if path.is_file():
        text = read_folder(path.parent, [path.name])[path.name]
        return StoredMetrics(name, {Subject("", "", ""): numbers(text, name)})
    if path.is_dir():
        return _open_folder(name, path)
    try:
        return MetricsOfCommit(name, folder)
    except ParameterError:
        raise ParameterError(
            f"{name!r} is not a file, a folder, or a revision that git knows here"
        ) from None


def _open_folder(name: str, folder: Path) -> StoredMetrics:
    """The metrics in a folder: a project's, `artifacts`, `artifacts/metrics` or a run's."""
    root = folder
    for candidate in (folder / METRICS, folder / "metrics"):
        if candidate.is_dir():
            root = candidate
            break
    run = ""
    if (root / DETECTOR).is_file():
        run = root.name
        root = root.parent
    return StoredMetrics(name, _of_runs(read_folder(root, [run]), "", name), root.parent)


def since_commit(folder: Path) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """Metrics and counts of the last commit, and of the project's files as they are.

    Returns:
        {(file, name): (value in the commit, value now)}; {} outside of git, and where the last
        commit has no metrics.
    """
    try:
        metrics = read_commit(folder, "HEAD", [METRICS])
        counts = read_commit(folder, "HEAD", [COUNTS])
    except ParameterError:  # not under git, or no git on this machine
        return {}
    if not metrics:
        return {}
    committed = metrics | counts
    stored = read_folder(folder, [METRICS, COUNTS])
    values: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    for file in dict.fromkeys([*committed, *stored]):
        before = numbers(committed[file], file) if file in committed else {}
        after = before
        if stored.get(file) != committed.get(file):
            after = numbers(stored[file], file) if file in stored else {}
        for name in dict.fromkeys([*before, *after]):
            values[file, name] = (before.get(name), after.get(name))
    return values


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
            continue
        is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
        if is_number or item is None:
            yield f"{prefix}{name}", item


def _of_runs(files: Mapping[str, bytes], root: str, name: str) -> Values:
    """The metrics in files below a folder; those of datasets and curation are not results.

    Args:
        files: {path: content}.
        root: The folder of metrics, as the paths begin.
        name: The folder or commit, as users call it.
    """
    content_by_path = {}
    for file, content in files.items():
        content_by_path[PurePosixPath(file).relative_to(root)] = content
    runs = set()
    for path in content_by_path:
        if path.name == DETECTOR and len(path.parts) == 2:
            runs.add(path.parts[0])

    values = {}
    for path, content in content_by_path.items():
        subject = _subject(path)
        if subject is not None and subject.run in runs:
            values[subject] = numbers(content, f"{name}: {path}")
    return values


def _subject(path: PurePosixPath) -> Subject | None:
    """The subject of RUN/detector.json or RUN/SPLIT/METHOD.json; None for other files.

    Also None for RUN/methods.json: it has means over splits, and errors on ID images, of which no
    replicates are stored.
    """
    method = path.stem
    if path.name == DETECTOR:
        method = ""
    if len(path.parts) == 2 and path.name != "methods.json":
        return Subject(path.parts[0], "", method)
    if len(path.parts) == 3:
        return Subject(path.parts[0], path.parts[1], method)
    return None
