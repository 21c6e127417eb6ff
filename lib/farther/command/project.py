"""The project that a command is about: its parameters, and the arguments that several subcommands take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from farther.errors import FartherError, ParameterError, choose

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

    def entry(self, section: str, name: str) -> Any:
        """An entry of a section."""
        entries = self.section(section)
        if name not in entries:
            known = ", ".join(map(str, entries)) or "nothing"
            raise ParameterError(
                f"{self.file}: section {section!r} has no entry {name!r}. It has {known}"
            )
        return entries[name]

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
    named = {
        entry["benchmark"] for run, entry in project.section("detectors").items() if run in words
    }
    wanted = (named | words) & set(benchmarks) or benchmarks
    return dict.fromkeys(
        split for name in benchmarks if name in wanted for split in benchmarks[name]["splits"]
    )


def metrics(*_: Any) -> Iterable[str]:
    """All metrics."""
    from farther.metrics.catalogue import METRICS

    return METRICS


def _completion(names: Names) -> Any:
    """Shell completion; of nothing where params.yaml is absent or half written."""

    def completed(context: typer.Context) -> list[str]:
        project = Project(Path(context.params.get("params") or PARAMS))
        given = [
            *context.params.values(),
            context.args,
        ]  # words before an option without its value are in `args`
        words = {
            str(word)
            for value in given
            for word in (value if isinstance(value, list | tuple) else [value])
        }
        with suppress(FartherError, OSError, AttributeError, KeyError, TypeError):
            return list(
                map(
                    str, project.section(names) if isinstance(names, str) else names(project, words)
                )
            )
        return []

    return completed if names else None


def argument(metavar: str, help: str, names: Names = "") -> Any:
    """An argument; the shell completes it with names, if they are given."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=_completion(names))


def option(metavar: str, help: str, names: Names = "") -> Any:
    """An option with a value; see `argument`."""
    return typer.Option(metavar=metavar, help=help, autocompletion=_completion(names))


Params = Annotated[Path, typer.Option("--params", metavar="FILE", help="File of parameters.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BenchmarkName = Annotated[str, argument("BENCHMARK", "Name under 'benchmarks'.", "benchmarks")]
