"""What only people can say about a dataset: its title, licence, makers, and answers to the datasheet's questions."""

from __future__ import annotations

from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError, ParameterError
from farther.registry import STRICT, build


class Question(NamedTuple):
    """One question of the datasheet.

    Args:
        key: What a file of words calls it.
        section: The part of the datasheet that it belongs to.
        text: The question.
        answer: What can be said from the tables, with places for figures; "" where only people know.
    """

    key: str
    section: str
    text: str
    answer: str


@cache
def datasheet() -> tuple[Question, ...]:
    """The questions of a datasheet (Gebru et al., 2021), as FMIYC's Appendix A answers them."""
    content = yaml.safe_load(files(__package__).joinpath("datasheet.yaml").read_text(encoding="utf-8"))
    return tuple(
        Question(key, section, entry["question"], entry.get("answer", "").strip())
        for section, entries in content.items()
        for key, entry in entries.items()
    )


@dataclass(config=STRICT, kw_only=True)
class Words:
    """What a publisher says.

    Args:
        title: The dataset's name.
        summary: A paragraph about it.
        license: Licence of the selection and its annotations, as the hub abbreviates it ("cc-by-4.0"). The images keep
            their own.
        url: Where it is published.
        version: Its version.
        published: The day.
        creators: Who made it.
        citation: How to cite it.
        answers: Answers by the keys of the datasheet's questions; they stand below what the tables say.
    """

    title: str = ""
    summary: str = ""
    license: str = ""
    url: str = ""
    version: str = "1.0.0"
    published: date | None = None
    creators: tuple[str, ...] = ()
    citation: str = ""
    answers: dict[str, str] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        known = [question.key for question in datasheet()]
        strangers = [key for key in self.answers if key not in known]
        if strangers:
            raise ParameterError(f"answers: no question {strangers[0]!r}. Known: {', '.join(known)}")


def read_words(path: str | Path) -> Words:
    """Reads a YAML file of words.

    Raises:
        DataError: the file is absent, is not YAML, or has a field that is unknown or of a wrong type; names it.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"not YAML: {error}", file=path) from None
    if content is None:
        return Words()
    if not isinstance(content, dict):
        raise DataError(f"expected a mapping, found {content!r}", file=path)
    try:
        return build(Words, "words", {str(key): value for key, value in content.items()})
    except ParameterError as error:
        raise DataError(str(error), file=path) from None
