"""The dataset card of a publication: `README.md` with metadata for the hub, counts and a datasheet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

import polars as pl
from huggingface_hub import DatasetCard, DatasetCardData
from jinja2 import Environment, StrictUndefined

import farther
from farther.curation.fates import category_counts, fate_counts
from farther.escaping import markdown
from farther.publication.contents import Publication, PublishedSplit
from farther.publication.datasheet import Question, Words, datasheet
from farther.publication.parquet import described, split_name

#: Number of categories per split that the card lists; the files contain all.
SHOWN = 20

COLUMNS = {
    "image": "the image's file, unchanged",
    "file_name": "its path below the folder of its dataset",
    "image_id": "its name in its dataset",
    "height": "pixels",
    "width": "pixels",
    "dataset_origin": "the dataset it comes from",
    "distance_category": "distance of its split from the ID dataset: near, far, farther; ID for the ID dataset itself",
    "objects": (
        "labelled objects: `id`, `area` and `bbox` (x, y, width, height; pixels, x and y are edges), `category_id`, "
        "`iscrowd` (the box contains several objects), `is_difficult`"
    ),
    "categories": "classes that the image shows: `id`, `name`, `supercategory` (its parent, where known)",
    "license": "licence of the image, from its dataset's files",
    "license_url": "text of the licence",
    "author": "author of the image",
    "source_url": "page that the image comes from",
}


def card(publication: Publication) -> str:
    """The text of `README.md`: metadata and the template `card.md`. The Parquet files' schema describes the columns."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"images": _images, "split_name": split_name}
    values = _values(publication)
    answers = {one.key: environment.from_string(one.answer).render(values) for one in datasheet()}
    answered = [
        one._replace(answer=_answer(one, answers, publication.words)) for one in datasheet()
    ]
    sheet = [
        (section, list(questions))
        for section, questions in groupby(answered, key=lambda one: one.section)
    ]
    template = environment.from_string(
        files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    )
    text = re.sub(r"\n{3,}", "\n\n", template.render(values, datasheet=sheet)).strip()
    return str(DatasetCard(f"---\n{_metadata(publication).to_yaml()}\n---\n\n{text}\n"))


def _answer(question: Question, answers: Mapping[str, str], words: Words) -> str:
    """Answer from the tables, then the publisher's."""
    parts = [" ".join(answers[question.key].split()), words.answers.get(question.key, "").strip()]
    return "\n\n".join(filter(None, parts)) or f"*Not answered yet (`{question.key}`).*"


def _values(publication: Publication) -> dict[str, Any]:
    """Values of the templates `card.md` and `datasheet.yaml`."""
    splits, words, benchmark, fates = (
        publication.splits,
        publication.words,
        publication.benchmark,
        publication.fates,
    )
    credits = [split.credit(row) for split in splits for row in range(len(split.images))]
    licences = Counter(credit.license for credit in credits)
    counts = fate_counts(fates).join(
        _sources(splits), on=["dataset", "subset"], how="semi", maintain_order="left"
    )
    ood = _sources([split for split in splits if split.distance != "ID"])
    considered = counts.join(ood, on=["dataset", "subset"], how="semi")
    decided = [names for names in fates.decided_by if names]
    columns = dict.fromkeys(name for split in splits for name in described(split).names)
    return {
        "title": markdown(publication.title),
        "words": words,
        "fence": "`" * (1 + max(2, *map(len, re.findall("`+", words.citation)), 2)),
        "published": "" if words.published is None else words.published.isoformat(),
        "version": farther.__version__,
        "id_dataset": benchmark.id,
        "id_classes": [markdown(name) for name in publication.id_classes],
        "rules": markdown(benchmark.rules.name),
        "protocol": markdown(benchmark.protocol),
        "splits": splits,
        "first": splits[0],
        "ood": [split.name for split in splits if split.distance != "ID"],
        "sources": " and ".join(
            dict.fromkeys(markdown(f"{one.dataset} ({one.subset})") for one in splits)
        ),
        "origins": "; ".join(f"{name}: {origin}" for name, origin in publication.origins.items()),
        "total": len(credits),
        "objects": sum(int((~split.objects.is_unlabelled).sum()) for split in splits),
        "unlabelled": sum(int(split.objects.is_unlabelled.sum()) for split in splits),
        "crowd": sum(
            int((split.objects.is_crowd & ~split.objects.is_unlabelled).sum()) for split in splits
        ),
        "difficult": sum(int(split.objects.is_difficult.sum()) for split in splits),
        "considered": considered["images"].sum(),
        "removed": considered.filter(fate="removed")["images"].sum(),
        "decided": len(decided),
        "fate_count": len(fates),
        "reviewers": {name.strip() for names in decided for name in names.split(",")},
        "authors": sum(bool(credit.author) for credit in credits),
        "unlicensed": licences.pop("", 0),
        "licences": [(markdown(name), count) for name, count in sorted(licences.items())],
        "columns": [(f"`{name}`", COLUMNS[name]) for name in columns],
        "split_rows": [_split_row(split) for split in splits],
        "categories": [(split.name, _categories(split)) for split in splits],
        "similarity": _similarity(publication),
        "fates": [
            (
                *map(markdown, (f"{one['dataset']} ({one['subset']})", one["fate"], one["reason"])),
                f"{one['images']:,}",
            )
            for one in counts.iter_rows(named=True)
        ],
    }


def _sources(splits: Sequence[PublishedSplit]) -> pl.DataFrame:
    rows = [(split.dataset, split.subset) for split in splits]
    return pl.DataFrame(rows, schema={"dataset": pl.String, "subset": pl.String}, orient="row")


def _metadata(publication: Publication) -> DatasetCardData:
    """Metadata for the hub and the library `datasets`."""
    images = sum(len(split.images) for split in publication.splits)
    return DatasetCardData(
        pretty_name=publication.title,
        license=publication.words.license or "other",
        task_categories=["object-detection"],
        tags=["out-of-distribution", "open-set", "benchmark"],
        size_categories=[_size_category(images)],
        configs=[
            {
                "config_name": split.name,
                "data_files": [{"split": split_name(split), "path": f"{split.name}/*.parquet"}],
            }
            for split in publication.splits
        ],
    )


def _size_category(images: int) -> str:
    """The hub's category for a dataset of this size."""
    steps = ["1K", "10K", "100K", "1M", "10M", "100M", "1B"]
    place = len(str(images // 1000)) if images >= 1000 else 0
    return f"n<{steps[0]}" if place == 0 else f"{steps[place - 1]}<n<{steps[place]}"


def _split_row(split: PublishedSplit) -> tuple[str, ...]:
    labelled = split.objects[~split.objects.is_unlabelled]
    counts = (len(split.images), len(labelled), len(set(labelled.category)))
    source = markdown(f"{split.dataset} ({split.subset})")
    return f"`{split.name}`", source, split.distance, *(f"{count:,}" for count in counts)


def _categories(split: PublishedSplit) -> list[tuple[str, ...]]:
    counts = category_counts(split.objects)
    top = counts.head(SHOWN).iter_rows(named=True)
    rows: list[tuple[str, ...]] = [
        (markdown(one["category"]), f"{one['objects']:,}", f"{one['images']:,}") for one in top
    ]
    rest = counts[SHOWN:]
    return [*rows, (f"{len(rest)} others", f"{rest['objects'].sum():,}", "")] if len(rest) else rows


def _similarity(publication: Publication) -> list[tuple[str, ...]]:
    keys = ("similarity", "median", "low", "high")
    return [
        (f"`{name}`", *(f"{values[key]:.3f}" if key in values else "" for key in keys))
        for name, values in publication.similarity.items()
    ]


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"
