"""The project that a command is about: its parameters, and the arguments that several subcommands take."""

from __future__ import annotations

from collections.abc import Callable
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
        folder: The project's folder, which paths in the parameters are relative to: the one that stages run in.
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
            raise ParameterError(f"{self.file}: section {section!r} has no entry {name!r}. It has {known}")
        return entries[name]

    def benchmark(self, name: str) -> Any:
        """A benchmark (`farther.curation.Benchmark`), checked."""
        from farther.curation import benchmark

        benchmarks = self.section("benchmarks")
        return benchmark(name, benchmarks[choose("benchmark", name, benchmarks)])


def _names_in(section: str) -> Callable[[str], list[str]]:
    """Shell completion of the names in a section of params.yaml; none where it cannot be read."""

    def names(incomplete: str) -> list[str]:
        with suppress(FartherError, OSError):
            return [name for name in Project().section(section) if str(name).startswith(incomplete)]
        return []

    return names


def argument(metavar: str, help: str, section: str = "") -> Any:
    """An argument; the shell completes it with the names in a section of params.yaml, if one is given."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=_names_in(section) if section else None)


def option(metavar: str, help: str, section: str = "") -> Any:
    """An option with a value; see `argument`."""
    return typer.Option(metavar=metavar, help=help, autocompletion=_names_in(section) if section else None)


Params = Annotated[Path, typer.Option("--params", metavar="FILE", help="File of parameters.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BenchmarkName = Annotated[str, argument("BENCHMARK", "Name under 'benchmarks'.", "benchmarks")]
