"""Prompts of text encoders: the ID classes and negative prompts, put into templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field

from farther.errors import DataError, ParameterError, shorten
from farther.tables.files import digest, read_text, regular_file

#: Type of a parameter `template`: a sentence in which `{}` is the place of a name, or several.
Template = Annotated[str, Field(pattern=r"\{\}")]
Templates = Template | Annotated[tuple[Template, ...], Field(min_length=1)]

#: Type of a parameter `unknown`: prompts that mean unknown objects, or a text file of them, one per
#: line.
Unknown = tuple[str, ...] | Path

#: Largest number of prompts, as labels are 16-bit integers; most bytes of a file of them; most
#: characters of one.
MOST_PROMPTS, MOST_BYTES, MOST_CHARACTERS = np.iinfo(np.int16).max, 2**24, 500


@dataclass(frozen=True)
class Prompts:
    """Prompts of a text encoder, one per logits column: the classes, then the negative prompts.

    Args:
        classes: Names of the ID classes.
        unknown: Names of what is not an ID class ("object", or negatives mined from WordNet). They
            are put into the templates as the classes are, and their columns mean an unknown object.
        templates: Sentences; `{}` is the place of a name. Embeddings of several are averaged
            (Radford et al. 2021, arXiv:2103.00020, Section 3.1.4).

    Example:
        >>> prompts = Prompts.of(("cat", "dog"), "a photo of a {}", ["object"])
        >>> prompts.columns, prompts.unknown_columns
        (('cat', 'dog', 'object'), (2,))
        >>> prompts.sentences()
        [('a photo of a cat', 'a photo of a dog', 'a photo of a object')]
    """

    classes: tuple[str, ...]
    unknown: tuple[str, ...]
    templates: tuple[str, ...]

    @classmethod
    def of(
        cls, classes: Sequence[str], template: Templates, unknown: Sequence[str] | Path = ()
    ) -> Self:
        """Prompts of an entry of params.yaml.

        Args:
            classes: The ID classes.
            template: One template, or several.
            unknown: Prompts, or a text file with one per line; blank lines and lines that begin
                with `#` are skipped.

        Raises:
            ParameterError: a prompt is empty or too long, or occurs twice or is also a class, where
                case and spaces do not count; there are too many; or a template has no `{}`.
            DataError: the same of a line of the file; or the file is absent, too large, not UTF-8,
                or has no prompt.
        """
        templates = (template,) if isinstance(template, str) else tuple(template)
        for sentence in templates:
            if "{}" not in sentence:
                raise ParameterError(
                    f"parameter 'template': {shorten(sentence)} lacks {{}}, the place of a class name"
                )
        lines = _of_file(unknown) if isinstance(unknown, Path) else list(enumerate(unknown))
        file = unknown if isinstance(unknown, Path) else None
        seen: dict[str, str] = {}
        for name in classes:
            _check(name, seen, "classes")
            seen[_folded(name)] = f"also the class {name!r}"
        for row, name in lines:
            try:
                _check(name, seen, "unknown")
            except ParameterError as error:
                if file is None:
                    raise
                raise DataError(str(error).partition(": ")[2], file=file, row=row) from None
            seen[_folded(name)] = "listed twice"
        if len(seen) > MOST_PROMPTS:
            problem = f"{len(classes)} classes and {len(lines)} prompts; at most {MOST_PROMPTS:,} are read"
            raise ParameterError(f"parameter 'unknown': {problem}")
        return cls(tuple(classes), tuple(name.strip() for _, name in lines), templates)

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of each logits column."""
        return (*self.classes, *self.unknown)

    @property
    def unknown_columns(self) -> tuple[int, ...]:
        """Columns of the negative prompts."""
        return tuple(range(len(self.classes), len(self.columns)))

    def sentences(self) -> list[tuple[str, ...]]:
        """For each template, the sentence of each column."""
        return [
            tuple(template.replace("{}", name) for name in self.columns)
            for template in self.templates
        ]

    def identity(self) -> dict[str, Any]:
        """What results depend on, for a cache key: the templates, and a digest of all names in their order."""
        parts = [digest(*self.classes), digest(*self.unknown)]
        return {
            "templates": list(self.templates),
            "names": len(self.columns),
            "names_digest": digest(*parts),
        }


def _of_file(path: Path) -> list[tuple[int, str]]:
    """Line number and text of each prompt in a file."""
    if (size := regular_file(path).stat().st_size) > MOST_BYTES:
        raise DataError(f"{size:,} bytes; at most {MOST_BYTES:,} are read as prompts", file=path)
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).split("\n"), 1)]
    found = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not found:
        raise DataError("has no prompt; write one per line", file=path)
    return found


def _check(name: str, seen: dict[str, str], parameter: str) -> None:
    """Refuses a name that is empty, too long or not printable, or that was seen."""
    problem = None
    if not name.strip():
        problem = "is empty: write a name or leave it out"
    elif len(name) > MOST_CHARACTERS:
        problem = f"has {len(name):,} characters; at most {MOST_CHARACTERS} are read"
    elif not name.isprintable() or "{}" in name:
        problem = "is not a name: it has a line break, another control character or {}"
    elif (what := seen.get(_folded(name))) is not None:
        problem = f"is {'listed twice' if parameter == 'classes' else what}"
    if problem is not None:
        raise ParameterError(f"parameter {parameter!r}: the prompt {shorten(name)} {problem}")


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
