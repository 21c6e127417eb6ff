"""Two sets of metrics side by side: where each is read from, how they differ, and whether by more than chance.

A revision's metrics are in git. Its evaluation is read through DVC, from its cache or its remote.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from farther.command.project import git
from farther.errors import DataError, FartherError, ParameterError, choose

if TYPE_CHECKING:
    from farther.evaluation.paired import Replicates, StoredEvaluation

#: p below which a change counts as more than chance.
LEVEL = 0.05
METRICS, COUNTS = "artifacts/metrics", "artifacts/counts"
JSON = "**/*.json"
DETECTOR = "detector"

#: Why some metrics have no test.
WITHOUT_METHOD = "Metrics of a detector alone (map, no_detection and the like) are not tested."
SINGLE = "Single files of metrics are not tested: name folders that have the evaluation beside them."


class Subject(NamedTuple):
    """The run, split and method that a file of metrics is about; "" where it is about all splits, or all methods."""

    run: str
    split: str
    method: str

    def __str__(self) -> str:
        return "/".join(filter(None, self))


Values = Mapping[Subject, Mapping[str, float | None]]


@dataclass(frozen=True)
class Change:
    """One metric on both sides.

    Args:
        subject: What it was measured on.
        metric: Its name.
        before, after: Its values; None where a side has none.
        interval: 95% interval of after − before on the same draws of images, where that was tested.
        p: Probability of so large a change by chance alone, where that was tested.
        apart: Whether the sides' own intervals do not overlap, where only these are available.
    """

    subject: Subject
    metric: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    apart: bool | None = None

    @property
    def names(self) -> dict[str, str]:
        """Run, split, method and metric."""
        return {**self.subject._asdict(), "metric": self.metric}

    @property
    def change(self) -> float | None:
        """after − before."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def result(self) -> str:
        """better, worse or different, if by more than chance; "apart" for intervals without a test; else ""."""
        from farther.metrics.catalogue import METRICS as CATALOGUE

        if self.p is None:
            return "apart" if self.apart else ""
        if self.p >= LEVEL or not self.change:
            return ""
        higher = CATALOGUE[self.metric].higher_is_better if self.metric in CATALOGUE else None
        if higher is None:
            return "different"
        return "better" if (self.change > 0) == higher else "worse"


class Side:
    """One of two things that are compared.

    Args:
        name: As users call it.
        texts: Files of metrics: path below the metrics' folder → JSON.
        values: All metrics of runs, read from `texts` by default; those of datasets and curation are not results.
    """

    def __init__(self, name: str, texts: Mapping[PurePosixPath, str], values: Values | None = None):
        self.name = name
        runs = {path.parts[0] for path in texts if path.name == f"{DETECTOR}.json" and len(path.parts) == 2}
        self.values: Values = values or {
            subject: _numbers(text, f"{name}: {path}")
            for path, text in texts.items()
            if (subject := _subject(path, runs)) is not None
        }
        self._evaluations: dict[str, StoredEvaluation] = {}

    def artifacts(self, name: str) -> Path:
        """A folder laid out as `artifacts/` that has this file or folder; raises DataError where there is none."""
        raise DataError(f"a single file of metrics has no {name} beside it", file=self.name)

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

    def interval(self, row: Change) -> tuple[float, float] | None:
        """A metric's own interval; None where there is no evaluation."""
        try:
            methods = self.evaluation(row.subject.run).report["methods"]
            return methods[row.subject.method]["splits"][row.subject.split]["intervals"][row.metric]
        except (FartherError, KeyError):
            return None


class FolderSide(Side):
    """A folder of metrics: `artifacts/metrics`, `artifacts`, a project's folder, or a run's folder of metrics."""

    def __init__(self, name: str, folder: Path):
        from farther.tables.files import read_text
        from farther.tables.folders import listed

        root = next(one for one in (folder / METRICS, folder / "metrics", folder) if one.is_dir())
        files = JSON
        if (root / f"{DETECTOR}.json").is_file():
            root, files = root.parent, f"{root.name}/**/*.json"
        self._root = root.parent
        found = {file.relative_to(root).as_posix(): file for file in listed(root, files)}
        super().__init__(name, {PurePosixPath(k): read_text(file) for k, file in found.items()})

    def artifacts(self, name: str) -> Path:
        """See `Side.artifacts`."""
        if not (self._root / name).exists():
            raise DataError("not beside the metrics", file=self._root / name)
        return self._root


class RevisionSide(Side):
    """A commit, by any name that git knows; its evaluation comes from DVC's cache or remote."""

    def __init__(self, name: str, folder: Path):
        super().__init__(name, dict(_archived(name, folder, METRICS)))
        self._folder = folder
        self._copy = tempfile.TemporaryDirectory(prefix="farther-compare-")
        self._fetched: dict[str, DataError | None] = {}

    def artifacts(self, name: str) -> Path:
        """See `Side.artifacts`."""
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
        """Copies an output of the revision; returns the error where neither cache nor remote has it."""
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


def since_commit(folder: Path) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """(file, name) of each metric and count → its value in the last commit, and in the project's files as they are.

    Nothing outside of git, and where the last commit has no metrics.
    """
    from farther.tables.files import read_text
    from farther.tables.folders import listed

    committed: dict[str, str] = {}
    for place in (METRICS, COUNTS):
        with suppress(ParameterError, OSError):  # not under git, not committed, or no git on this machine
            committed |= {f"{place}/{path}": text for path, text in _archived("HEAD", folder, place)}
    if not any(name.startswith(METRICS) for name in committed):
        return {}
    files = [file for place in (METRICS, COUNTS) for file in listed(folder / place, JSON)]
    now = {file.relative_to(folder).as_posix(): read_text(file) for file in files}
    before, after = (
        {(file, name): value for file, text in texts.items() for name, value in _numbers(text, file).items()}
        for texts in (committed, now)
    )
    return {key: (before.get(key), after.get(key)) for key in {**before, **after}}


def _archived(revision: str, folder: Path, place: str) -> Iterator[tuple[PurePosixPath, str]]:
    """The JSON files of a commit below a folder; one `git archive` reads hundreds of files at once."""
    command = ["git", "-C", str(folder), "archive", "--format=tar", revision, place]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        problem = done.stderr.decode(errors="replace").strip()
        raise ParameterError(f"{revision} has no folder {place}: {problem}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            held = archive.extractfile(member) if member.name.endswith(".json") else None
            if held is not None:
                path = PurePosixPath(member.name).relative_to(place)
                yield path, held.read().decode("utf-8", errors="replace")


def open_side(name: str, folder: Path) -> Side:
    """The side that a user names: "workspace" (the project's `folder`), an existing path, else a git revision."""
    from farther.tables.files import read_text

    path = folder if name == "workspace" else Path(name)
    if path.is_dir():
        return FolderSide(name, path)
    if path.is_file():
        return Side(name, {}, {Subject("", "", ""): _numbers(read_text(path), name)})
    if git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") is None:
        raise ParameterError(f"{name!r} is not a file, a folder, or a revision that git knows here")
    return RevisionSide(name, folder)


def tested_changes(rows: Sequence[Change], before: Side, after: Side) -> tuple[list[Change], list[str]]:
    """The rows with their p, or with what their own intervals show; and notes on what could not be tested.

    A metric is tested where its value changed and both sides have replicates of the same draws of images.
    """
    from farther.evaluation.paired import compare

    notes: dict[str, None] = {}
    tested: dict[Subject, dict[str, dict[str, Any]] | None] = {}
    found: list[Change] = []
    for row in rows:
        if row.change and not row.subject.method:
            notes[WITHOUT_METHOD if row.subject.run else SINGLE] = None
        elif row.change:
            if row.subject not in tested:
                try:
                    tested[row.subject] = compare(before.replicates(row.subject), after.replicates(row.subject))
                except FartherError as error:
                    notes[f"{row.subject.run}: not tested: {error}"] = None
                    tested[row.subject] = None
            results = tested[row.subject]
            row = replace(row, apart=_apart(row, before, after)) if results is None else _with_test(row, results)
        found.append(row)
    return found, list(notes)


def compared_methods(
    root: Path, run: str, methods: tuple[str, str], splits: Sequence[str], metrics: Sequence[str]
) -> list[Change]:
    """How the second method differs from the first, on the same images."""
    from farther.evaluation.paired import StoredEvaluation, compare
    from farther.metrics.catalogue import COMPARED, METRICS

    evaluation = StoredEvaluation(root, run)
    known = evaluation.report["methods"]
    first, second = (known[choose("method of this run", name, known)]["splits"] for name in methods)
    rows = []
    for split in [choose("split of this run", name, first) for name in splits] or list(first):
        tested = compare(*(evaluation.replicates(name, split) for name in methods))
        for metric in [choose("metric", name, tested) for name in metrics] or COMPARED:
            before, after = (METRICS[metric].of(one[split]) for one in (first, second))
            rows.append(_with_test(Change(Subject(run, split, ""), metric, before, after), tested))
    return rows


def _with_test(row: Change, tested: Mapping[str, Mapping[str, Any]]) -> Change:
    found = tested.get(row.metric)
    return row if found is None else replace(row, interval=found["interval"], p=found["p"])


def _apart(row: Change, before: Side, after: Side) -> bool | None:
    """Whether the two sides' own intervals do not overlap; None where one has none."""
    first, second = before.interval(row), after.interval(row)
    if first is None or second is None:
        return None
    return first[1] < second[0] or second[1] < first[0]


def _subject(path: PurePosixPath, runs: set[str]) -> Subject | None:
    run, *split = path.parts[:-1] or ("",)
    if not split and path.name == "methods.json":
        return None  # means over splits, and errors on ID images: no replicates of them are stored
    method = "" if path.stem == DETECTOR else path.stem
    return Subject(run, "".join(split), method) if run in runs and len(split) < 2 else None


def _numbers(text: str, source: str) -> dict[str, float | None]:
    """The numbers of a JSON object; nested ones by their path."""
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
