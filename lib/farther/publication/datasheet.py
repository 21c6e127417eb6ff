"""The questions of a datasheet (Gebru et al., 2021), and the publisher's statements.

Source: Datasheets for Datasets, arXiv:1803.09010.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from farther.datasets.records import read_mapping
from farther.errors import DataError, ParameterError
from farther.naming.registry import STRICT, Parameters, build
from farther.tables.documents import parse_yaml


@dataclass(frozen=True)
class Question:
    """A question of the datasheet.

    Args:
        key: Its name in the publisher's file.
        section: Title of its section.
        text: The question.
        answer: Template of the answer from the tables, "" where only people know it.
    """

    key: str
    section: str
    text: str
    answer: str


@cache
def datasheet() -> tuple[Question, ...]:
    """The questions of a datasheet, in the order of FMIYC's Appendix A."""
    text = files(__package__).joinpath("datasheet.yaml").read_text(encoding="utf-8")
    questions = []
    for section, entries in parse_yaml(text).items():
        for key, entry in entries.items():
            answer = entry.get("answer", "").strip()
            questions.append(Question(key, section, entry["question"], answer))
    return tuple(questions)


@checked_dataclass(config=STRICT, kw_only=True)
class Words(Parameters):
    """The publisher's statements about a dataset.

    Args:
        title: The dataset's name.
        summary: A paragraph about it.
        license: Licence of the selection and its annotations, by the hub's identifier
            ("cc-by-4.0"). The images keep theirs.
        url: Address of the publication.
        version: Its version.
        published: Date of publication.
        creators: Names of its creators.
        citation: BibTeX entry or text.
        answers: Answers by the keys of the datasheet's questions; they follow the answers from the
            tables.
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
        unknown = [key for key in self.answers if key not in known]
        if unknown:
            raise ParameterError(
                f"answers: unknown question {unknown[0]!r}. Known: {', '.join(known)}"
            )


def read_words(path: str | Path) -> Words:
    """Reads the publisher's statements from a YAML file.

    Raises:
        DataError: the file is absent, is not YAML, or has an unknown field or one of a wrong type;
            names it.
    """
    content = read_mapping(Path(path), "a mapping from title, summary, … to text")
    params = {str(key): value for key, value in content.items()}
    try:
        return build(Words, "words", params)
    except ParameterError as error:
        raise DataError(str(error), file=path) from None
