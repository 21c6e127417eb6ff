"""The dataset card of a publication: `README.md` with metadata, counts and a datasheet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import polars as pl
from huggingface_hub import DatasetCard, DatasetCardData
from jinja2 import Environment, StrictUndefined

import farther
from farther.curation.fates import category_counts, fate_counts
from farther.datasets.base import Credit
from farther.publication.contents import Publication, PublishedSplit
from farther.publication.datasheet import Question, datasheet
from farther.publication.parquet import described, split_name
from farther.text.escaping import markdown

#: Number of categories per split that the card lists; the files contain all.
SHOWN = 20

COLUMNS = {
    "image": "the image's file, unchanged",
    "file_name": "its path below the folder of its dataset",
    "image_id": "its name in its dataset",
    "height": "pixels",
    "width": "pixels",
    "dataset_origin": "the dataset it comes from",
    "distance_category": (
        "distance of its split from the ID dataset: near, far, farther; ID for the ID dataset "
        "itself"
    ),
    "objects": (
        "labelled objects: `id`, `area` and `bbox` (x, y, width, height; pixels, x and y are "
        "edges), `category_id`, `iscrowd` (the box contains several objects), `is_difficult`"
    ),
    "categories": (
        "classes that the image shows: `id`, `name`, `supercategory` (its parent, where known)"
    ),
    "license": "licence of the image, from its dataset's files",
    "license_url": "text of the licence",
    "author": "author of the image",
    "source_url": "page that the image comes from",
}

#: Number of images from which on the hub has the next size category.
SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B")


def card(publication: Publication) -> str:
    """The text of `README.md`: metadata and the template `card.md`.

    The Parquet files' schema describes the columns.
    """
    environment = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"images": _images, "split_name": split_name}
    values = _values(publication)
    questions = _answered_questions(environment, values, publication.words.answers)
    source = files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    text = environment.from_string(source).render(values, datasheet=questions)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return str(DatasetCard(f"---\n{_metadata(publication).to_yaml()}\n---\n\n{text}\n"))


def _answered_questions(
    environment: Environment, values: Mapping[str, Any], publisher_answers: Mapping[str, str]
) -> list[tuple[str, list[Question]]]:
    """The sections of the datasheet: title, and questions with rendered answers.

    Args:
        environment: Renders the templates of answers.
        values: Values of the templates.
        publisher_answers: Key of a question → the publisher's answer.
    """
    questions_by_section: dict[str, list[Question]] = {}
    for question in datasheet():
        from_tables = environment.from_string(question.answer).render(values)
        answers = [
            " ".join(from_tables.split()),
            publisher_answers.get(question.key, "").strip(),
        ]
        text = "\n\n".join(filter(None, answers))
        if not text:
            text = f"*Not answered yet (`{question.key}`).*"
        questions = questions_by_section.setdefault(question.section, [])
        questions.append(replace(question, answer=text))
    return list(questions_by_section.items())


def _values(publication: Publication) -> dict[str, Any]:
    """Values of the templates `card.md` and `datasheet.yaml`."""
    words = publication.words
    splits = publication.splits
    published = "" if words.published is None else words.published.isoformat()
    origins = [f"{name}: {origin}" for name, origin in publication.origins.items()]
    return {
        "title": markdown(publication.title),
        "words": words,
        "fence": _fence(words.citation),
        "published": published,
        "version": farther.__version__,
        "id_dataset": publication.benchmark.id,
        "id_classes": [markdown(name) for name in publication.id_classes],
        "rules": markdown(publication.benchmark.rules.name),
        "protocol": markdown(publication.benchmark.protocol),
        "splits": splits,
        "first": splits[0],
        "ood": [split.name for split in _ood_splits(splits)],
        "sources": " and ".join(dict.fromkeys(_source_title(split) for split in splits)),
        "origins": "; ".join(origins),
        "columns": _column_rows(splits),
        "split_rows": [_split_row(split) for split in splits],
        "categories": [(split.name, _category_rows(split)) for split in splits],
        "similarity": _similarity_rows(publication),
        **_object_counts(splits),
        **_credit_values(splits),
        **_fate_values(publication),
        **_review_values(publication),
    }


def _fence(citation: str) -> str:
    """A fence of backticks that is longer than any in a text."""
    longest = 2
    for backticks in re.findall("`+", citation):
        longest = max(longest, len(backticks))
    return "`" * (longest + 1)


def _ood_splits(splits: Sequence[PublishedSplit]) -> list[PublishedSplit]:
    return [split for split in splits if split.distance != "ID"]


def _source_title(split: PublishedSplit) -> str:
    return markdown(f"{split.dataset} ({split.subset})")


def _object_counts(splits: Sequence[PublishedSplit]) -> dict[str, int]:
    """Number of labelled objects, of images without labels, of crowds and of difficult objects."""
    counts = {"objects": 0, "unlabelled": 0, "crowd": 0, "difficult": 0}
    for split in splits:
        objects = split.objects
        is_labelled = ~objects.is_unlabelled
        counts["objects"] += int(is_labelled.sum())
        counts["unlabelled"] += int(objects.is_unlabelled.sum())
        counts["crowd"] += int((objects.is_crowd & is_labelled).sum())
        counts["difficult"] += int(objects.is_difficult.sum())
    return counts


def _credit_values(splits: Sequence[PublishedSplit]) -> dict[str, Any]:
    """Number of images, those with an author, and licences with their numbers of images."""
    credits: list[Credit] = []
    for split in splits:
        credits += [split.credit(row) for row in range(len(split.images))]
    images_by_licence = Counter(credit.license for credit in credits)
    unlicensed = images_by_licence.pop("", 0)
    return {
        "total": len(credits),
        "authors": sum(bool(credit.author) for credit in credits),
        "unlicensed": unlicensed,
        "licences": [(markdown(name), count) for name, count in sorted(images_by_licence.items())],
    }


def _fate_values(publication: Publication) -> dict[str, Any]:
    """Number of images of the OOD sources, of those that were removed, and the table of reasons."""
    counts = fate_counts(publication.fates)
    sources = ["dataset", "subset"]
    published = counts.join(
        _sources(publication.splits), on=sources, how="semi", maintain_order="left"
    )
    considered = published.join(_sources(_ood_splits(publication.splits)), on=sources, how="semi")
    rows = []
    for count in published.iter_rows(named=True):
        rows.append(
            (
                markdown(f"{count['dataset']} ({count['subset']})"),
                markdown(count["fate"]),
                markdown(count["reason"]),
                f"{count['images']:,}",
            )
        )
    return {
        "considered": considered["images"].sum(),
        "removed": considered.filter(fate="removed")["images"].sum(),
        "fates": rows,
    }


def _review_values(publication: Publication) -> dict[str, Any]:
    """Number of images that reviewers decided on, and the reviewers."""
    decided = 0
    reviewers: set[str] = set()
    for names in publication.fates.decided_by:
        if names:
            decided += 1
            reviewers.update(name.strip() for name in names.split(","))
    return {"decided": decided, "fate_count": len(publication.fates), "reviewers": reviewers}


def _sources(splits: Sequence[PublishedSplit]) -> pl.DataFrame:
    rows = [(split.dataset, split.subset) for split in splits]
    return pl.DataFrame(rows, schema={"dataset": pl.String, "subset": pl.String}, orient="row")


def _metadata(publication: Publication) -> DatasetCardData:
    """Metadata for the hub and the library `datasets`."""
    images = 0
    configs = []
    for split in publication.splits:
        images += len(split.images)
        data_files = [{"split": split_name(split), "path": f"{split.name}/*.parquet"}]
        configs.append({"config_name": split.name, "data_files": data_files})
    return DatasetCardData(
        pretty_name=publication.title,
        license=publication.words.license or "other",
        task_categories=["object-detection"],
        tags=["out-of-distribution", "open-set", "benchmark"],
        size_categories=[_size_category(images)],
        configs=configs,
    )


def _size_category(images: int) -> str:
    """The hub's category for a dataset of this size."""
    if images < 1000:
        return f"n<{SIZES[0]}"
    step = len(str(images // 1000))
    return f"{SIZES[step - 1]}<n<{SIZES[step]}"


def _column_rows(splits: Sequence[PublishedSplit]) -> list[tuple[str, str]]:
    """Name and meaning of each column that any split has."""
    columns: dict[str, None] = {}
    for split in splits:
        columns.update(dict.fromkeys(described(split).names))
    return [(f"`{name}`", COLUMNS[name]) for name in columns]


def _split_row(split: PublishedSplit) -> tuple[str, ...]:
    labelled = split.objects[~split.objects.is_unlabelled]
    return (
        f"`{split.name}`",
        _source_title(split),
        split.distance,
        f"{len(split.images):,}",
        f"{len(labelled):,}",
        f"{len(set(labelled.category)):,}",
    )


def _category_rows(split: PublishedSplit) -> list[tuple[str, str, str]]:
    """Name, objects and images of the most frequent categories, and one row for the others."""
    counts = category_counts(split.objects)
    rows = []
    for count in counts.head(SHOWN).iter_rows(named=True):
        rows.append((markdown(count["category"]), f"{count['objects']:,}", f"{count['images']:,}"))
    rest = counts[SHOWN:]
    if len(rest):
        rows.append((f"{len(rest)} others", f"{rest['objects'].sum():,}", ""))
    return rows


def _similarity_rows(publication: Publication) -> list[tuple[str, ...]]:
    """Mean, median and quantiles of the similarity of each split, "" where not measured."""
    rows = []
    for name, values in publication.similarity.items():
        cells = []
        for key in ("similarity", "median", "low", "high"):
            cells.append(f"{values[key]:.3f}" if key in values else "")
        rows.append((f"`{name}`", *cells))
    return rows


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"
