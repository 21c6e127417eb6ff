"""Undocumented parts of DVC that `farther.dvc_repro` uses, and checks that they are as expected.

DVC runs one stage at a time and holds its lock in between. To run the commands of several stages
side by side, `farther.dvc_repro` takes the order of the stages from DVC and replaces the function
that runs a stage's command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class _Callee:
    """A function or method of DVC.

    Args:
        module: Its module.
        name: Its name there; that of a method is `CLASS.METHOD`.
        parameters: Names of parameters that it is called with.
    """

    module: str
    name: str
    parameters: tuple[str, ...]

    def problem(self) -> str | None:
        """Why it cannot be called; None where it can."""
        try:
            function: Any = import_module(self.module)
            for attribute in self.name.split("."):
                function = getattr(function, attribute)
            signature = inspect.signature(function)
        except (ImportError, AttributeError, TypeError, ValueError):
            return f"has no {self.module}.{self.name}"
        expected = ", ".join(self.parameters)
        problem = f"has another {self.module}.{self.name} than one of ({expected})"
        if not signature.parameters.keys() >= set(self.parameters):
            return problem
        try:
            signature.bind(**dict.fromkeys(self.parameters))
        except TypeError:  # it needs more
            return problem
        return None


_CALLEES = (
    _Callee("dvc.repo", "lock_repo", ("repo",)),
    _Callee("dvc.repo.reproduce", "collect_stages", ("repo", "targets")),
    _Callee("dvc.repo.reproduce", "_reproduce", ("stages", "repro_fn")),
    _Callee("dvc.stage", "Stage.reproduce", ("self",)),
    _Callee("dvc.stage", "Stage.save_deps", ("self", "allow_missing")),
    _Callee("dvc.dvcfile", "ProjectFile.dump_stages", ("self", "stages", "update_pipeline")),
    _Callee("dvc.stage.run", "run_stage", ("stage", "force")),
    _Callee("dvc.stage.run", "unlocked_repo", ("f",)),
    _Callee("dvc.stage.run", "_make_cmd", ("executable", "cmd")),
    _Callee("dvc.stage.run", "get_executable", ()),
    _Callee("dvc.stage.run", "prepare_kwargs", ("stage", "run_env")),
)


def unsupported() -> str | None:
    """Why this DVC cannot run stages side by side, as "DVC 4.0 has no …"; None where it can."""
    problem = _problem()
    if problem is None:
        return None
    import dvc

    return f"DVC {dvc.__version__} {problem}"


def _problem() -> str | None:
    for callee in _CALLEES:
        problem = callee.problem()
        if problem is not None:
            return problem
    try:
        shell_command = make_command("true")
    except Exception:
        return "makes no shell command of a text"
    if shell_command[-1] != "true":
        return "makes another shell command of a text"
    if not _replaces_commands():
        return "runs the commands of stages in another way"
    return None


def _replaces_commands() -> bool:
    """Whether DVC calls a function that `commands` puts in the place of its own."""
    from dvc.stage import run

    stage = object()
    calls = []

    def execute(*arguments: Any, **options: Any) -> None:
        calls.append((arguments, options))

    try:
        with commands(execute):
            run.run_stage(stage, force=True)
    except Exception:
        return False
    return len(calls) == 1 and calls[0][0] == (stage,) and calls[0][1].get("dry") is False


def planned_stages(repo: Any, targets: Sequence[str]) -> dict[Any, list[Any]]:
    """The stages that DVC would run, in its order, each with those that it depends on.

    Args:
        repo: The project, `dvc.repo.Repo`.
        targets: Names of stages; all where there are none.

    Raises:
        dvc.exceptions.DvcException: dvc.yaml, dvc.lock or a target is wrong.
    """
    upstream_by_stage: dict[Any, list[Any]] = {}

    def plan(stage: Any, upstream: list[Any], **_: Any) -> None:
        upstream_by_stage[stage] = upstream

    with ExitStack() as stack:
        replace_function(stack, import_module("dvc.dvcfile"), "load_file", _loaded_once)
        repo.reproduce(list(targets) or None, repro_fn=plan)  # nothing runs
    return upstream_by_stage


def _loaded_once(load_usual: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the place of `dvc.dvcfile.load_file`: a file is parsed once, and dvc.lock with it.

    DVC parses both for the stages of the targets, and again for the graph of all stages.
    """
    files: dict[tuple[Any, str], Any] = {}

    def load_file(repo: Any, path: Any, **options: Any) -> Any:
        if options:
            return load_usual(repo, path, **options)
        key = (repo, str(Path.cwd() / path))
        if key not in files:
            files[key] = load_usual(*key)
        return files[key]

    return load_file


def named_stages(repo: Any, targets: Sequence[str]) -> list[Any]:
    """The stages of targets, without those that they depend on.

    Raises:
        dvc.exceptions.DvcException: a target is wrong.
    """
    from dvc.repo.reproduce import collect_stages

    return collect_stages(repo, targets)


def make_command(command: str) -> Any:
    """Arguments of `subprocess.Popen` that run a command of a stage in the user's shell."""
    from dvc.stage import run

    return run._make_cmd(run.get_executable(), command)


def process_options(stage: Any, run_env: Any = None) -> dict[str, Any]:
    """Options of `subprocess.Popen` for a command of a stage: working directory and environment."""
    from dvc.stage import run

    return run.prepare_kwargs(stage, run_env=run_env)


@contextmanager
def commands(execute: Callable[..., None]) -> Iterator[None]:
    """Has DVC call a function in the place of the one that runs a stage's command without its lock.

    Args:
        execute: Takes the stage, and options by name.
    """
    from dvc.stage import run

    usual = run.unlocked_repo
    run.unlocked_repo = lambda _: execute
    try:
        yield
    finally:
        run.unlocked_repo = usual


def replace_function(
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
