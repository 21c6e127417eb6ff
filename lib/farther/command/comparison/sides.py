"""What is compared: a git revision, a folder or a file of metrics.

A revision's metrics are in git. Its regions and scores are in DVC's cache, if they still are: `dvc.lock` of that
revision names them by their content, and they are linked into a temporary folder from there.
"""

from __future__ import annotations

import configparser
import io
import json
import re
import subprocess
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from farther.command.needs.machine import git
from farther.command.project import read_yaml
from farther.errors import DataError, ParameterError

METRICS = "artifacts/metrics"
DETECTOR = "detector"


class Place(NamedTuple):
    """What a file of metrics is about; "" where it is about all splits, or all methods."""

    run: str
    split: str
    method: str

    def __str__(self) -> str:
        return "/".join(filter(None, self))


Figures = Mapping[Place, Mapping[str, float | None]]


class Side(ABC):
    """One of two things that are compared.

    Args:
        name: What the user calls it.
    """

    def __init__(self, name: str):
        self.name = name

    @abstractmethod
    def files(self) -> Iterator[tuple[PurePosixPath, str]]:
        """Files of metrics: path below the metrics' folder, and text."""

    @abstractmethod
    def artifacts(self, run: str) -> Path:
        """A folder with what the stages wrote about a run, laid out as `artifacts/`.

        Raises:
            DataError: it is not at hand; says why.
        """

    @cached_property
    def figures(self) -> Figures:
        """All figures of runs; those of datasets and curation are no results, and are left out.

        Raises:
            DataError: a file is no JSON object.
        """
        texts = dict(self.files())
        runs = {path.parts[0] for path in texts if path.name == f"{DETECTOR}.json" and len(path.parts) == 2}
        found: dict[Place, Mapping[str, float | None]] = {}
        for path, text in texts.items():
            place = _place(path, runs)
            if place is not None:
                found[place] = _numbers(text, f"{self.name}: {path}")
        return found


class FolderSide(Side):
    """A folder of metrics: `artifacts/metrics`, `artifacts`, a project's folder, or a run's folder of metrics."""

    def __init__(self, name: str, folder: Path):
        super().__init__(name)
        inner = (folder / METRICS, folder / "metrics", folder)
        self.metrics = next(one for one in inner if one.is_dir())
        if (self.metrics / f"{DETECTOR}.json").is_file():
            self.metrics, self._only = self.metrics.parent, self.metrics.name
        else:
            self._only = "*"

    def files(self) -> Iterator[tuple[PurePosixPath, str]]:
        """See `Side.files`."""
        for file in sorted(self.metrics.glob(f"{self._only}/**/*.json")):
            yield PurePosixPath(file.relative_to(self.metrics).as_posix()), file.read_text(encoding="utf-8")

    def artifacts(self, run: str) -> Path:
        """See `Side.artifacts`."""
        root = self.metrics.parent
        if not (root / "regions" / run).is_dir():
            raise DataError(f"the regions of {run} do not lie beside the metrics", file=root / "regions" / run)
        return root


class FileSide(Side):
    """A single file of metrics."""

    def __init__(self, name: str, file: Path):
        super().__init__(name)
        self.file = file

    def files(self) -> Iterator[tuple[PurePosixPath, str]]:
        """See `Side.files`."""
        yield PurePosixPath(self.file.name), self.file.read_text(encoding="utf-8")

    @cached_property
    def figures(self) -> Figures:
        """The figures of the file, under no name."""
        return {Place("", "", ""): _numbers(self.file.read_text(encoding="utf-8"), self.name)}

    def artifacts(self, run: str) -> Path:
        """See `Side.artifacts`."""
        raise DataError("a single file of metrics has no regions and scores beside it", file=self.file)


class RevisionSide(Side):
    """A commit, by any name that git knows.

    Args:
        name: That name.
        folder: The project's folder.
    """

    def __init__(self, name: str, folder: Path):
        super().__init__(name)
        self.folder = folder
        self._linked = tempfile.TemporaryDirectory(prefix="farther-compare-")
        self._ready: set[str] = set()

    def files(self) -> Iterator[tuple[PurePosixPath, str]]:
        """See `Side.files`."""
        packed = _archive(self.folder, self.name, METRICS)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                held = archive.extractfile(member) if member.name.endswith(".json") else None
                if held is not None:
                    path = PurePosixPath(member.name).relative_to(METRICS)
                    yield path, held.read().decode("utf-8", errors="replace")

    def artifacts(self, run: str) -> Path:
        """See `Side.artifacts`."""
        root = Path(self._linked.name)
        if run not in self._ready:
            self._fetch(run, root)
            self._ready.add(run)
        return root

    def _fetch(self, run: str, root: Path) -> None:
        """Links what the figures of a run are computed from."""
        from farther.tables.files import inside, read_json

        report = f"evaluation/{run}.json"
        if f"artifacts/{report}" not in self._outputs:
            raise DataError(f"{self.name}: dvc.lock does not name the evaluation of {run}", file="dvc.lock")
        self._link(self._outputs[f"artifacts/{report}"], inside(root, report))
        benchmark = read_json(root / report).get("benchmark")
        wanted = (f"splits/{benchmark}", *(f"{kind}/{run}" for kind in ("regions", "scores", "fitted")))
        for path, content in self._outputs.items():
            name = path.removeprefix("artifacts/")
            if name in (f"thresholds/{run}.json", *wanted) or name.startswith(tuple(f"{one}/" for one in wanted)):
                self._link(content, inside(root, name))

    def _show(self, path: str) -> str | None:
        return git(self.folder, "show", f"{self.name}:./{path}")

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """Content of each output by path, as the revision's dvc.lock names it."""
        lock = read_yaml(self._show("dvc.lock") or "") or {}
        outs = [out for stage in (lock.get("stages") or {}).values() for out in stage.get("outs") or ()]
        if not outs:
            raise DataError("the revision has no dvc.lock, so its regions and scores have no name", file="dvc.lock")
        return {out["path"]: out["md5"] for out in outs if "md5" in out}

    @cached_property
    def _cache(self) -> Path:
        """The folder of DVC's cached files."""
        config = configparser.ConfigParser(strict=False)
        config.read([self.folder / ".dvc" / "config", self.folder / ".dvc" / "config.local"], encoding="utf-8")
        place = config.get("cache", "dir", fallback="cache")
        return self.folder / ".dvc" / place / "files" / "md5"

    def _cached(self, content: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{32}(\.dir)?", content):
            raise DataError(f"{content!r} is no name of cached content", file="dvc.lock", field="md5")
        path = self._cache / content[:2] / content[2:]
        if not path.is_file():
            raise DataError("not in DVC's cache: `dvc fetch --all-commits` or `dvc pull` may bring it", file=path)
        return path

    def _link(self, content: str, to: Path) -> None:
        """Links a cached file, or each file of a cached folder."""
        from farther.tables.files import inside, read_json

        if not content.endswith(".dir"):
            _symlink(self._cached(content), to)
            return
        for entry in read_json(self._cached(content)):
            _symlink(self._cached(entry["md5"]), inside(to, entry["relpath"]))


def open_side(name: str, folder: Path) -> Side:
    """What a user names: an existing path, else a git revision.

    Args:
        name: The path or the revision; "workspace" is what lies in the project's folder now.
        folder: The project's folder.

    Raises:
        ParameterError: it is neither.
    """
    if name == "workspace":
        return FolderSide(name, folder)
    path = Path(name)
    if path.is_file():
        return FileSide(name, path)
    if path.is_dir():
        return FolderSide(name, path)
    if git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") is None:
        raise ParameterError(f"{name!r} is no file, no folder, and no revision that git knows here")
    return RevisionSide(name, folder)


def _place(path: PurePosixPath, runs: set[str]) -> Place | None:
    if path.parts[0] not in runs or not 2 <= len(path.parts) <= 3:
        return None
    method = "" if path.stem == DETECTOR else path.stem
    return Place(path.parts[0], path.parts[1] if len(path.parts) == 3 else "", method)


def _numbers(text: str, source: str) -> dict[str, float | None]:
    """The numbers of a JSON object; nested ones by their path."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg}", file=source, row=error.lineno) from None
    if not isinstance(value, dict):
        raise DataError("expected figures by name", file=source)
    return dict(_flat(value, ""))


def _flat(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float | None]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{name}.")
        elif item is None or (isinstance(item, (int, float)) and not isinstance(item, bool)):
            yield f"{prefix}{name}", item


def _archive(folder: Path, revision: str, path: str) -> bytes:
    """A tar archive of a folder at a revision.

    Raises:
        ParameterError: the revision does not have the folder.
    """
    command = ["git", "-C", str(folder), "archive", "--format=tar", revision, path]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        raise ParameterError(f"{revision} has no folder {path}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _symlink(target: Path, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(target.absolute())
