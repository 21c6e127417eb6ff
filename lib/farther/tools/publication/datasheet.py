"""The datasheet of a publication (Gebru et al., 2021): answers from the tables and from the publisher.

Source: Datasheets for Datasets, arXiv:1803.09010.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import yaml
from pydantic import Field
from pydantic.dataclasses import dataclass

import farther
from farther.curation.counts import fate_counts
from farther.datasets.records import read_yaml
from farther.errors import DataError, ParameterError
from farther.registry import STRICT, build

if TYPE_CHECKING:
    from farther.tools.publication.contents import Publication, PublishedSplit


class Question(NamedTuple):
    """A question of the datasheet, and the answer of the tables with placeholders ("" where only people know)."""

    key: str
    section: str
    text: str
    answer: str


@cache
def datasheet() -> tuple[Question, ...]:
    """The questions of a datasheet, in the order of FMIYC's Appendix A."""
    content = yaml.safe_load(files(__package__).joinpath("datasheet.yaml").read_text(encoding="utf-8"))
    return tuple(
        Question(key, section, entry["question"], entry.get("answer", "").strip())
        for section, entries in content.items()
        for key, entry in entries.items()
    )


@dataclass(config=STRICT, kw_only=True)
class Words:
    """The publisher's statements about a dataset.

    Args:
        title: The dataset's name.
        summary: A paragraph about it.
        license: Licence of the selection and its annotations, by the hub's identifier ("cc-by-4.0"). The images keep
            theirs.
        url: Address of the publication.
        version: Its version.
        published: Date of publication.
        creators: Names of its creators.
        citation: BibTeX entry or text.
        answers: Answers by the keys of the datasheet's questions; they follow what the tables say.
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
            raise ParameterError(f"answers: unknown question {unknown[0]!r}. Known: {', '.join(known)}")


def read_words(path: str | Path) -> Words:
    """Reads the publisher's statements from a YAML file.

    Raises:
        DataError: the file is absent, is not YAML, or has an unknown field or one of a wrong type; names it.
    """
    content = read_yaml(Path(path))
    if content is None:
        return Words()
    if not isinstance(content, dict):
        raise DataError(f"expected a mapping, found {content!r}", file=path)
    try:
        return build(Words, "words", {str(key): value for key, value in content.items()})
    except ParameterError as error:
        raise DataError(str(error), file=path) from None


def answered(publication: Publication) -> list[str]:
    """The datasheet in Markdown, one paragraph per heading and question."""
    values = _values(publication)
    parts = []
    for section, questions in groupby(datasheet(), key=lambda question: question.section):
        parts.append(f"### {section}")
        parts += [_answer(question, values, publication) for question in questions]
    return parts


def _answer(question: Question, values: Mapping[str, str], publication: Publication) -> str:
    answers = [question.answer.format_map(values).strip(), publication.words.answers.get(question.key, "").strip()]
    answer = "\n\n".join(filter(None, answers))
    return f"**{question.text}**\n\n{answer or f'*Not answered yet (`{question.key}`).*'}"


def _values(publication: Publication) -> dict[str, str]:
    """Values of the placeholders in the datasheet's answers."""
    splits, words, benchmark = publication.splits, publication.words, publication.benchmark
    sources = dict.fromkeys(f"{split.dataset} ({split.subset})" for split in splits)
    return {
        "id_dataset": benchmark.id,
        "id_classes": ", ".join(publication.id_classes),
        "id_class_count": str(len(publication.id_classes)),
        "images": _images(sum(len(split.images) for split in splits)),
        "objects": f"{sum(len(split.objects) for split in splits):,}",
        "crowd": f"{sum(int(np.sum(split.objects.is_crowd)) for split in splits):,}",
        "difficult": f"{sum(int(np.sum(split.objects.is_difficult)) for split in splits):,}",
        "splits": ", ".join(f"{split.name} ({_images(len(split.images))})" for split in splits),
        "split_count": "one configuration" if len(splits) == 1 else f"{len(splits)} configurations",
        "sources": " and ".join(sources),
        "origins": "; ".join(f"{name}: {origin}" for name, origin in publication.origins.items()),
        "rules": benchmark.rules.name,
        "protocol": benchmark.protocol,
        "selection": _selection(publication),
        "fates": 'The table under "How images were chosen" counts them.',
        "people": _people(publication),
        "use": _use(splits),
        "not_for": _not_for(publication),
        "credits": _credits(splits),
        "image_licences": _image_licences(splits),
        "licence": f"Selection and annotations: {words.license}." if words.license else "",
        "url": words.url,
        "published": "" if words.published is None else words.published.isoformat(),
        "dataset_version": words.version,
        "version": farther.__version__,
    }


def _selection(publication: Publication) -> str:
    sources = {(split.dataset, split.subset) for split in publication.splits if split.distance != "ID"}
    counts = fate_counts(publication.fates).iter_rows(named=True)
    considered = [one for one in counts if (one["dataset"], one["subset"]) in sources]
    removed = sum(one["images"] for one in considered if one["fate"] == "removed")
    if not considered:
        return ""
    all_images = _images(sum(one["images"] for one in considered))
    verb = "was" if removed == 1 else "were"
    return f"Of {all_images} there, {removed:,} {verb} removed."


def _people(publication: Publication) -> str:
    fates = publication.fates
    decided = fates.decided_by != ""
    if not decided.any():
        return "No person has reviewed the images."
    reviewers = {name.strip() for names in fates.decided_by[decided] for name in names.split(",")}
    counted = f"{int(decided.sum()):,} of {len(fates):,} images of the sources"
    return f"People decided on {counted} (reviewers: {len(reviewers)})."


def _use(splits: Iterable[PublishedSplit]) -> str:
    names = [split.name for split in splits if split.distance != "ID"]
    return f"{', '.join(names)}: for tests only, not for training." if names else "Those of the ID dataset."


def _not_for(publication: Publication) -> str:
    if any(split.distance != "ID" for split in publication.splits):
        return "Training: a detector that has seen unknown objects does not show its behaviour on them."
    return "Anything that its source does not allow."


def _credits(splits: Sequence[PublishedSplit]) -> str:
    images = sum(len(split.images) for split in splits)
    known = sum(bool(split.credit(row).author) for split in splits for row in range(len(split.images)))
    return f"The author of {known:,} of {_images(images)} is known from the files of the sources."


def _image_licences(splits: Sequence[PublishedSplit]) -> str:
    licences = Counter(split.credit(row).license for split in splits for row in range(len(split.images)))
    unknown = licences.pop("", 0)
    parts = [f"{name} ({_images(count)})" for name, count in sorted(licences.items())]
    sentences = [f"Images keep their own licences: {', '.join(parts)}."] if parts else []
    if unknown:
        sentences.append(
            f"The licence of {_images(unknown)} is not known: the files of their datasets do not contain "
            "it. Look it up at the source before you redistribute them."
        )
    return " ".join(sentences)


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"
