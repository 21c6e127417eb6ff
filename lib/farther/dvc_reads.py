"""What DVC reads several times while it reproduces stages, read once.

For each stage, DVC parses the files of parameters and searches them for each parameter, walks and
hashes the folders that the stage depends on, and opens Git's index, up to eight times each: with a
hundred stages, most of the processor time that DVC takes. Nothing that DVC records differs.
"""

from __future__ import annotations

import copy
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from farther.dvc_hashes import StoredHash, StoredHashes
from farther.dvc_internals import replace_function

#: Names of files of parameters whose content is kept: that of other formats has values of its own.
PARAMETERS = (".yaml", ".yml", ".json")
#: Largest number of files of a folder whose hash is kept beyond one stage.
MOST_FILES = 10_000
#: Kind of the hashes that `Output.get_hash` returns: they are kept beyond one run.
HASH_INFO = "hash info"


@dataclass
class _Hash:
    """What DVC returned when it hashed a file or folder.

    Args:
        states: Digest of the states of all files in it, from before it was hashed; None where they
            are not known.
        result: What DVC returned.
        round: Number of the last call of `forget_hashes` before it was known to be valid; 0 where
            it comes from an earlier run.
    """

    states: str | None
    result: Any
    round: int


class Reads:
    """What was read, for one project.

    Files of parameters and Git's index are parsed again when their bytes changed: times and sizes
    may stay the same. Hashes are valid until `forget_hashes`, and beyond it where no file changed.
    """

    def __init__(self) -> None:
        self._parameters: dict[str, tuple[bytes, Any]] = {}
        #: Of each file of parameters: its bytes, and the values of the parameters that were read.
        self._values: dict[str, tuple[bytes, dict[str, Any]]] = {}
        self._indices: dict[str, tuple[bytes, Any]] = {}
        self._hashes: dict[tuple[Any, ...], _Hash] = {}
        self._round = 1
        #: Whether a hash is not stored that another run can use.
        self._is_news = False

    def forget_hashes(self) -> None:
        """Has files looked at again: a command may have changed them.

        DVC hashes a file again where its inode, time or size changed, and so does this.
        """
        self._round += 1

    @contextmanager
    def keep(self, repo: Any) -> Iterator[None]:
        """Has DVC use what was read, and hashes of earlier runs whose files have not changed.

        A function that this DVC does not have is left out: it only takes longer.

        Args:
            repo: The project, `dvc.repo.Repo`.
        """
        from dvc.dependency import param
        from dvc.dependency.base import Dependency
        from dvc.output import Output
        from dvc.stage import cache

        with ExitStack() as stack:
            replace_function(stack, param, "load_path", self._kept_parameters)
            replace_function(stack, param, "read_param_file", self._kept_values)
            replace_function(stack, Dependency, "_build", self._kept_hashes)
            replace_function(stack, Output, "get_hash", self._kept_hash_infos)
            replace_function(stack, cache, "_can_hash", self._without_hashes)
            replace_function(stack, _git_repository(repo), "open_index", self._kept_index)
            stack.enter_context(self._with_stored_hashes(repo))
            yield

    @contextmanager
    def _with_stored_hashes(self, repo: Any) -> Iterator[None]:
        """Begins with the hashes of earlier runs, and stores those that are known at the end."""
        if not repo.tmp_dir:  # a project without a folder `.dvc`
            yield
            return
        stored = StoredHashes(repo.root_dir, repo.tmp_dir)
        self._add_stored(stored.read())
        try:
            yield
        finally:
            if self._is_news:
                stored.write(self._to_store())

    def _add_stored(self, hashes: list[StoredHash]) -> None:
        """Adds hashes of earlier runs."""
        from dvc_data.hashfile.hash_info import HashInfo

        for entry in hashes:
            key = (entry.path, entry.algorithm, HASH_INFO)
            hash_info = HashInfo(entry.algorithm, entry.value)
            self._hashes[key] = _Hash(entry.states, hash_info, round=0)

    def _to_store(self) -> list[StoredHash]:
        """The hashes that another run can use."""
        entries = []
        for (path, algorithm, kind), kept in self._hashes.items():
            if kind != HASH_INFO or kept.states is None or not os.path.lexists(path):
                continue
            name = kept.result.name
            value = kept.result.value
            if name == algorithm and isinstance(value, str):
                entries.append(StoredHash(path, algorithm, kept.states, value))
        return entries

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
                if _content(path) != content:  # it changed meanwhile
                    return entry[1]
                self._parameters[path] = entry
            # A copy: a value that two stages shared would be written as an alias of YAML.
            return copy.deepcopy(entry[1])

        return load_path

    def _kept_values(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.dependency.param.read_param_file`.

        DVC walks through all parameters of a file for each name that it looks up.
        """

        def read_param_file(
            fs: Any, path: str, key_paths: list[str] | None = None, **options: Any
        ) -> Any:
            content = None
            if Path(path).suffix in PARAMETERS and _is_local(fs) and options == {"flatten": True}:
                content = _content(path)
            if content is None or not key_paths:
                return read(fs, path, key_paths, **options)

            entry = self._values.get(path)
            if entry is None or entry[0] != content:
                entry = content, {}
            value_by_name = entry[1]
            unknown = [name for name in key_paths if name not in value_by_name]
            if unknown:
                value_by_name.update(read(fs, path, unknown, **options))
            if _content(path) == content:  # else it changed meanwhile
                self._values[path] = entry
            found = {}
            for name in key_paths:
                if name in value_by_name:
                    found[name] = copy.deepcopy(value_by_name[name])
            return found

        return read_param_file

    def _kept_hashes(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.dependency.base.Dependency._build`."""

        def build_dependency(dependency: Any, *arguments: Any, **options: Any) -> Any:
            call = partial(build, dependency, *arguments, **options)
            if not _is_local(dependency.fs):
                return call()
            return self._kept_hash(dependency, options.get("dry_run"), call)

        return build_dependency

    def _kept_hash_infos(self, get_hash: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.output.Output.get_hash`: one stage's output is another's input.

        Outputs are built anew where DVC stores them: what it built before does not say where the
        files are.
        """

        def get_hash_info(output: Any) -> Any:
            if not _is_local(output.fs):
                return get_hash(output)
            return self._kept_hash(output, HASH_INFO, partial(get_hash, output))

        return get_hash_info

    def _kept_hash(self, output: Any, kind: Any, hash_files: Callable[[], Any]) -> Any:
        """The hash of a file or folder: computed again where a file in it changed.

        Args:
            output: DVC's output or dependency.
            kind: What `hash_files` returns.
            hash_files: Computes it.
        """
        key = (output.fs_path, output.hash_name, kind)
        kept = self._hashes.get(key)
        if kept is not None and kept.round == self._round:
            return kept.result
        states = _file_states(output.fs_path)  # before they are read
        if kept is None or states is None or kept.states != states:
            kept = _Hash(states, hash_files(), self._round)
            self._hashes[key] = kept
            if kind == HASH_INFO and states is not None:
                self._is_news = True
        kept.round = self._round
        return kept.result

    def _without_hashes(self, can_hash: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """Takes the place of `dvc.stage.cache._can_hash`: whether the cache of runs has a stage.

        DVC hashes all that the stage depends on before it looks at its outputs, of which none that
        is kept (`persist`) is in that cache.
        """

        def can_hash_outputs(stage: Any) -> bool:
            if any(output.persist for output in stage.outs):
                return False
            return can_hash(stage)

        return can_hash_outputs

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


def _is_local(fs: Any) -> bool:
    """Whether a file system of DVC is that of this machine.

    Those of Git and of DVC's own revisions have the protocol "local", too.
    """
    from dvc.fs import LocalFileSystem

    return isinstance(fs, LocalFileSystem)


def _file_states(path: str) -> str | None:
    """Digest of inode, mode, size and times of a file, or of each file and folder in a folder.

    Returns:
        None where they do not say whether something changed: where there are links, more files than
        `MOST_FILES`, or nothing.
    """
    try:
        found = os.lstat(path)
        states = [_state(path, found)]
        if stat.S_ISLNK(found.st_mode):
            return None
        folders = []
        if stat.S_ISDIR(found.st_mode):
            folders.append(path)
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink() or len(states) > MOST_FILES:
                        return None
                    states.append(_state(entry.path, entry.stat(follow_symlinks=False)))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    except OSError:
        return None
    return sha256(repr(sorted(states)).encode()).hexdigest()


def _state(path: str, found: os.stat_result) -> tuple[Any, ...]:
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (path, found.st_ino, found.st_mode, found.st_size, *times)


def _content(path: str) -> bytes | None:
    """The bytes of a file; None where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
