"""The project that a command is about: the file of parameters, and names looked up in it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from farther.errors import ParameterError

#: Names that a message lists at most.
LISTED = 20


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """The name, if it is known.

    Args:
        kind: What it names, in the singular ("run").

    Raises:
        ParameterError: it is not; the message has the nearest known one, and lists them.
    """
    names = sorted(set(known))
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    raise ParameterError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names[:LISTED]) or 'none'}{more}")


def read_yaml(text: str) -> Any:
    """What YAML says, by libyaml where it is there: a `dvc.lock` of many stages takes seconds without it."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@dataclass(frozen=True)
class Project:
    """A project's folder and its parameters.

    Args:
        file: The file of parameters.
        folder: The project's folder, which paths in the parameters are relative to: the one that stages run in.
    """

    file: Path = Path("params.yaml")
    folder: Path = Path()

    @property
    def artifacts(self) -> Path:
        """What stages write."""
        return self.folder / "artifacts"

    @cached_property
    def params(self) -> dict[str, Any]:
        """All parameters.

        Raises:
            ParameterError: the file is absent, or holds no sections.
        """
        import yaml

        try:
            params = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            problem = "the file does not exist. Run this in a project's folder, or name the file with --params"
            raise ParameterError(f"{self.file}: {problem}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ParameterError(f"{self.file}: not YAML: {error}") from None
        if not isinstance(params, dict):
            raise ParameterError(f"{self.file}: expected sections, found {params!r}")
        return params

    def section(self, name: str) -> dict[str, Any]:
        """A section; {} where there is none, or it is empty.

        Raises:
            ParameterError: it is no mapping.
        """
        found = self.params.get(name) or {}
        if not isinstance(found, dict):
            raise ParameterError(f"{self.file}: section {name!r}: expected names, found {found!r}")
        return found

    def run(self, name: str) -> dict[str, Any]:
        """An entry of section `detectors`.

        Raises:
            ParameterError: there is none of that name; the message lists them.
        """
        return self.section("detectors")[choose("run", name, self.section("detectors"))]

    def benchmark_names(self, wanted: str | None) -> list[str]:
        """The benchmarks, or the one that is wanted.

        Raises:
            ParameterError: there is none of that name; the message lists them.
        """
        known = list(self.section("benchmarks"))
        return known if wanted is None else [choose("benchmark", wanted, known)]


def add_params(parser: Any) -> None:
    """Adds the argument that names the file of parameters."""
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="(params.yaml)")
