"""What DVC reads several times while it reproduces one stage, read once.

For each stage, DVC parses the files of parameters, walks and hashes the folders that the stage
depends on, opens Git's index, and locks the stage's paths, up to eight times each: with a hundred
stages, two thirds of the processor time that DVC takes. Nothing that DVC records differs.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

#: Names of files of parameters whose content is kept: that of other formats has values of its own.
PARAMETERS = (".yaml", ".yml", ".json")


class Reads:
    """What was read, for one project.

    Files of parameters and Git's index are parsed again when their bytes changed: times and sizes
    may stay the same. Hashes of dependencies are valid until `forget_hashes`.
    """

    def __init__(self) -> None:
        self._parameters: dict[str, tuple[bytes, Any]] = {}
        self._indices: dict[str, tuple[bytes, Any]] = {}
        self._hashes: dict[tuple[Any, ...], Any] = {}
        #: Of each thread `locked`: the paths that its stage reads, and those that it writes.
        self._thread = threading.local()

    def forget_hashes(self) -> None:
        """Has dependencies hashed again: a command may have changed them."""
        self._hashes.clear()

    @contextmanager
    def keep(self, repo: Any) -> Iterator[None]:
        """Has DVC use what was read.

        A function that this DVC does not have is left out: it only takes longer.

        Args:
            repo: The project, `dvc.repo.Repo`.
        """
        from dvc import rwlock
        from dvc.dependency import param
        from dvc.dependency.base import Dependency

        with ExitStack() as stack:
            _replace(stack, param, "load_path", self._kept_parameters)
            _replace(stack, Dependency, "_build", self._kept_hashes)
            _replace(stack, rwlock, "rwlock", self._outermost_locks)
            _replace(stack, _git_repository(repo), "open_index", self._kept_index)
            yield

    def _kept_parameters(self, load: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.dependency.param.load_path`."""

        def load_path(path: str, fs: Any, **options: Any) -> Any:
            if options or Path(path).suffix not in PARAMETERS or not _is_local(fs):
                return load(path, fs, **options)
            content = _content(path)
            if content is None:
                return load(path, fs)
            entry = self._parameters.get(path)
            if entry is None or entry[0] != content:
                entry = content, load(path, fs)
                self._parameters[path] = entry
            # A copy: a value that two stages shared would be written as an alias of YAML.
            return copy.deepcopy(entry[1])

        return load_path

    def _kept_hashes(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.dependency.base.Dependency._build`."""

        def build_dependency(dependency: Any, *arguments: Any, **options: Any) -> Any:
            path, name = dependency.fs_path, dependency.hash_name
            if not _is_local(dependency.fs):
                return build(dependency, *arguments, **options)
            key = (path, name, options.get("dry_run"))
            if key not in self._hashes:
                self._hashes[key] = build(dependency, *arguments, **options)
            return self._hashes[key]

        return build_dependency

    def _outermost_locks(self, lock: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.rwlock.rwlock`, which locks the paths of a stage.

        DVC locks them again in each of the functions that it nests, by rewriting a file.
        """

        @contextmanager
        def lock_once(
            folder: str, fs: Any, command: str, read: list[str], write: list[str], *rest: Any
        ) -> Iterator[None]:
            held = getattr(self._thread, "locked", None)
            if held is not None and held[0].issuperset(read) and held[1].issuperset(write):
                yield
                return
            with lock(folder, fs, command, read, write, *rest):
                self._thread.locked = set(read), set(write)
                try:
                    yield
                finally:
                    self._thread.locked = held

        return lock_once

    def _kept_index(self, open_usual: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `open_index` of Git's repository."""
        git_repo: Any = open_usual.__self__  # type: ignore[attr-defined]

        def open_index(*arguments: Any, **options: Any) -> Any:
            path = os.fsdecode(git_repo.index_path())
            content = _content(path)
            if arguments or options or content is None:
                return open_usual(*arguments, **options)
            entry = self._indices.get(path)
            if entry is None or entry[0] != content:
                entry = content, open_usual()
                self._indices[path] = entry
            return entry[1]

        return open_index


def _git_repository(repo: Any) -> Any:
    """Git's repository as Dulwich has it; None where the project is not under Git."""
    from scmrepo.git import Git

    if not isinstance(repo.scm, Git):
        return None
    return getattr(getattr(repo.scm, "dulwich", None), "repo", None)


def _replace(
    stack: ExitStack, owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Any]
) -> None:
    """Replaces a function of a module, class or object until the stack is closed."""
    usual = getattr(owner, name, None)
    if usual is None:
        return
    had_own = name in vars(owner)
    setattr(owner, name, wrap(usual))
    if had_own:
        stack.callback(setattr, owner, name, usual)
    else:
        stack.callback(delattr, owner, name)


def _is_local(fs: Any) -> bool:
    """Whether a file system of DVC is that of this machine.

    Those of Git and of DVC's own revisions have the protocol "local", too.
    """
    from dvc.fs import LocalFileSystem

    return isinstance(fs, LocalFileSystem)


def _content(path: str) -> bytes | None:
    """The bytes of a file; None where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
