"""The project of a command: its parameters, and arguments that several subcommands take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from farther.errors import LISTED, AmbiguousNameError, FartherError, ParameterError, choose

PARAMS = Path("params.yaml")


@dataclass(frozen=True)
class Project:
    """A project's folder and its parameters.

    Args:
        file: The file of parameters.
        folder: The project's folder, which paths in the parameters are relative to: the one that
            stages run in.
    """

    file: Path = PARAMS
    folder: Path = Path()

    @property
    def artifacts(self) -> Path:
        """The folder that stages write."""
        return self.folder / "artifacts"

    @cached_property
    def params(self) -> dict[str, Any]:
        """All parameters."""
        from farther.params import read_params

        return read_params(self.file)

    def section(self, name: str) -> dict[str, Any]:
        """A section; {} where it is absent or empty."""
        return self.params.get(name) or {}

    @property
    def encoder(self) -> dict[str, Any] | None:
        """`embed.encoder`: the CLIP of passes that name no other; None where there is none."""
        return self.section("embed").get("encoder")

    def run(self, name: str | None) -> str:
        """The run that a user names; without a name, the project's only run.

        Raises:
            ParameterError: the name is unknown, or none is given and there are several runs, or
                none; the message lists them.
        """
        return self._named_or_only("run", name, "detectors")

    def benchmark_name(self, name: str | None) -> str:
        """The benchmark that a user names, or the only one; errors as in `run`."""
        return self._named_or_only("benchmark", name, "benchmarks")

    def _named_or_only(self, kind: str, name: str | None, section: str) -> str:
        """The entry of a section that a user names; without a name, the only one."""
        known = self.section(section)
        if name is not None:
            return choose(kind, name, known)
        if len(known) == 1:
            return next(iter(known))
        if not known:
            raise ParameterError(f"{self.file}: section {section!r} has no entry")
        listed = ", ".join(list(known)[:LISTED])
        raise ParameterError(f"name a {kind}, as there are {len(known)}: {listed}")

    def method(self, name: str) -> str:
        """The entry of section `methods` that a user names.

        By its own name, or by any name of its method
        (`farther.naming.canonical_names.choose_entry`).

        Raises:
            ParameterError: there is no such entry; the message suggests the nearest ones, and what
                to write where the name is that of a method.
            AmbiguousNameError: several entries may be meant; the message lists them.
        """
        from farther.naming.canonical_names import choose_entry, how_to_have

        try:
            return choose_entry("method", name, self.section("methods"))
        except AmbiguousNameError:
            raise
        except ParameterError as error:
            entry = how_to_have(name)
            if not entry:
                raise
            raise ParameterError(f"{error}. To have {name}, write {entry}") from None

    def benchmark(self, name: str) -> Any:
        """A benchmark (`farther.curation.Benchmark`), checked."""
        from farther.curation import benchmark

        benchmarks = self.section("benchmarks")
        return benchmark(name, benchmarks[choose("benchmark", name, benchmarks)])


#: Names that a shell may complete: a section of params.yaml, or a function of the project and of
#: the words so far.
Names = str | Callable[[Project, set[str]], Iterable[str]]


def splits(project: Project, words: set[str]) -> Iterable[str]:
    """OOD splits: those of the benchmarks and runs that were named, else all."""
    benchmarks = project.section("benchmarks")
    named = words & set(benchmarks)
    for run, entry in project.section("detectors").items():
        if run in words and entry["benchmark"] in benchmarks:
            named.add(entry["benchmark"])
    names: dict[str, None] = {}
    for benchmark, params in benchmarks.items():
        if not named or benchmark in named:
            names.update(dict.fromkeys(params["splits"]))
    return names


def metrics(*_: Any) -> Iterable[str]:
    """All metrics."""
    from farther.metrics.catalogue import METRICS

    return METRICS


def _completion(names: Names) -> Any:
    """A function that completes names for the shell; None where there are none."""
    if not names:
        return None

    def complete(context: typer.Context) -> list[str]:
        """The names; none where params.yaml is absent or half written."""
        project = Project(Path(context.params.get("params") or PARAMS))
        with suppress(FartherError, OSError, AttributeError, KeyError, TypeError):
            if isinstance(names, str):
                completions: Iterable[Any] = project.section(names)
            else:
                completions = names(project, _words(context))
            return [str(name) for name in completions]
        return []

    return complete


def _words(context: typer.Context) -> set[str]:
    """The words so far: values of arguments and options, and words that are not assigned yet.

    A word before an option without its value is one of the latter.
    """
    words = {str(word) for word in context.args}
    for value in context.params.values():
        if isinstance(value, list | tuple):
            words.update(str(word) for word in value)
        else:
            words.add(str(value))
    return words


def argument(metavar: str, help: str, names: Names = "") -> Any:
    """An argument; the shell completes it with names, if they are given."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=_completion(names))


def option(metavar: str, help: str, names: Names = "") -> Any:
    """An option with a value; see `argument`."""
    return typer.Option(metavar=metavar, help=help, autocompletion=_completion(names))


Params = Annotated[Path, typer.Option("--params", metavar="FILE", help="File of parameters.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BenchmarkName = Annotated[str, argument("BENCHMARK", "Name under 'benchmarks'.", "benchmarks")]
#: A benchmark that may be left out where there is one; see `Project.benchmark_name`.
OptionalBenchmark = Annotated[
    str | None,
    argument("BENCHMARK", "Name under 'benchmarks'; by default the only one.", "benchmarks"),
]
#: A run that may be left out where there is one; see `Project.run`.
OptionalRun = Annotated[
    str | None,
    argument("RUN", "A run that was evaluated; by default the only one.", "detectors"),
]
