"""Prompts of text encoders: the ID classes and negative prompts, in templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field

from farther.errors import DataError, ParameterError, shorten
from farther.tables.files import digest, read_text, regular_file

#: Type of a parameter `template`: a sentence in which `{}` is replaced by a name, or several.
Template = Annotated[str, Field(pattern=r"\{\}")]
Templates = Template | Annotated[tuple[Template, ...], Field(min_length=1)]

#: Type of a parameter `unknown`: prompts of unknown objects, or a text file of them, one per line.
Unknown = tuple[str, ...] | Path

#: Largest number of prompts: labels are 16-bit integers.
MAX_PROMPTS = np.iinfo(np.int16).max
#: Largest size of a file of prompts, in bytes.
MAX_BYTES = 2**24
#: Largest number of characters of a prompt.
MAX_CHARACTERS = 500


@dataclass(frozen=True)
class Prompts:
    """Prompts of a text encoder, one per logits column: the classes, then the negative prompts.

    Args:
        classes: Names of the ID classes.
        unknown: Names of other things than ID classes ("object", or negatives mined from WordNet).
            They are put into the templates like the classes, and their columns mean an unknown
            object.
        templates: Sentences; `{}` is replaced by a name. Embeddings of several are averaged
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
            ParameterError: a prompt is empty or too long, or occurs twice or is also a class
                (case and spaces are ignored); there are too many; or a template has no `{}`.
            DataError: the same for a line of the file; or the file is absent, too large, not UTF-8,
                or has no prompt.
        """
        templates = (template,) if isinstance(template, str) else tuple(template)
        for sentence in templates:
            if "{}" not in sentence:
                raise ParameterError(
                    f"parameter 'template': {shorten(sentence)} lacks {{}}, the place of a class "
                    "name"
                )

        #: Where each name occurs, for messages.
        occurrences: dict[str, str] = {}
        for name in classes:
            _check(name, occurrences, "classes")
            occurrences[_folded(name)] = f"also the class {name!r}"

        file = unknown if isinstance(unknown, Path) else None
        prompts = list(enumerate(unknown)) if file is None else _read_prompts(file)  # type: ignore[arg-type]
        for row, name in prompts:
            try:
                _check(name, occurrences, "unknown")
            except ParameterError as error:
                if file is None:
                    raise
                raise DataError(str(error).partition(": ")[2], file=file, row=row) from None
            occurrences[_folded(name)] = "listed twice"

        if len(occurrences) > MAX_PROMPTS:
            raise ParameterError(
                f"parameter 'unknown': {len(classes)} classes and {len(prompts)} prompts; at most "
                f"{MAX_PROMPTS:,} are read"
            )
        return cls(tuple(classes), tuple(name.strip() for _, name in prompts), templates)

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
        return [self._sentences_of(template) for template in self.templates]

    def _sentences_of(self, template: str) -> tuple[str, ...]:
        """The sentence of each column."""
        return tuple(template.replace("{}", name) for name in self.columns)

    def identity(self) -> dict[str, Any]:
        """The part of a cache key: the templates, and a digest of all names in their order."""
        names_digest = digest(digest(*self.classes), digest(*self.unknown))
        return {
            "templates": list(self.templates),
            "names": len(self.columns),
            "names_digest": names_digest,
        }


def _read_prompts(path: Path) -> list[tuple[int, str]]:
    """Line number and text of each prompt in a file."""
    size = regular_file(path).stat().st_size
    if size > MAX_BYTES:
        raise DataError(f"{size:,} bytes; at most {MAX_BYTES:,} are read as prompts", file=path)
    prompts = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        prompt = line.strip()
        if prompt and not prompt.startswith("#"):
            prompts.append((number, prompt))
    if not prompts:
        raise DataError("has no prompt; write one per line", file=path)
    return prompts


def _check(name: str, occurrences: dict[str, str], parameter: str) -> None:
    """Refuses a name that is empty, too long or not printable, or that occurs twice.

    Args:
        name: The name.
        occurrences: Where each earlier name occurs.
        parameter: The parameter, for messages.
    """
    problem = None
    if not name.strip():
        problem = "is empty: write a name or leave it out"
    elif len(name) > MAX_CHARACTERS:
        problem = f"has {len(name):,} characters; at most {MAX_CHARACTERS} are read"
    elif not name.isprintable() or "{}" in name:
        problem = "is not a name: it has a line break, another control character or {}"
    elif _folded(name) in occurrences:
        if parameter == "classes":
            problem = "is listed twice"
        else:
            problem = f"is {occurrences[_folded(name)]}"
    if problem is not None:
        raise ParameterError(f"parameter {parameter!r}: the prompt {shorten(name)} {problem}")


def _folded(name: str) -> str:
    """A name without case and repeated spaces."""
    return " ".join(name.casefold().split())
