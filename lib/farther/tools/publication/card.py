"""The dataset card of a publication: `README.md` with what a hub reads at its top, figures, and a datasheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

import farther
from farther.curation.counts import category_counts, fate_counts
from farther.tools.publication.contents import PublishedSplit
from farther.tools.publication.parquet import described, split_name, type_name
from farther.tools.publication.publication import Publication
from farther.tools.publication.words import Question, datasheet

#: Categories that the card lists of a split; the files hold all.
SHOWN = 20

COLUMNS = {
    "image": "the image's file, unchanged",
    "file_name": "its path below the folder of its dataset",
    "image_id": "its name in its dataset",
    "height": "pixels",
    "width": "pixels",
    "dataset_origin": "the dataset it comes from",
    "distance_category": "how far from the ID dataset its split is: near, far, farther; ID for the ID dataset itself",
    "objects": (
        "labelled objects: `id`, `area` and `bbox` (x, y, width, height; pixels, x and y are edges), `category_id`, "
        "`iscrowd` (the box holds several objects), `is_difficult`"
    ),
    "categories": "classes that the image shows: `id`, `name`, `supercategory` (what lies next above, where known)",
    "license": "licence of the image, as its dataset's files say it",
    "license_url": "its text",
    "author": "who made the image",
    "source_url": "where it was taken from",
}


def card(publication: Publication, shards: Mapping[str, Sequence[Path]]) -> str:
    """The text of `README.md`.

    Args:
        publication: What it is about.
        shards: The Parquet files of each split.
    """
    front = yaml.safe_dump(_front_matter(publication, shards), sort_keys=False, allow_unicode=True, width=1000)
    parts = [f"---\n{front}---", f"# {publication.title}"]
    parts += [publication.words.summary] if publication.words.summary else []
    parts += ["## Splits", _splits(publication)]
    parts += ["## Columns", *_columns(publication), "## Categories", *map(_categories, publication.splits)]
    if publication.similarity:
        parts += ["## Similarity to the ID dataset", *_similarity(publication)]
    parts += ["## How images were chosen", _fates(publication)]
    parts += ["## Datasheet", "After Gebru et al., *Datasheets for Datasets* (2021).", *_datasheet(publication)]
    if publication.words.citation:
        parts += ["## Citation", f"```\n{publication.words.citation.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _front_matter(publication: Publication, shards: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """What the hub and the library `datasets` read."""
    images = sum(len(split.images) for split in publication.splits)
    return {
        "pretty_name": publication.title,
        "license": publication.words.license or "other",
        "task_categories": ["object-detection"],
        "tags": ["out-of-distribution", "open-set", "benchmark"],
        "size_categories": [_size_category(images)],
        "configs": [
            {
                "config_name": split.name,
                "data_files": [{"split": split_name(split), "path": f"{split.name}/*.parquet"}],
            }
            for split in publication.splits
        ],
        "dataset_info": [_dataset_info(split, shards[split.name]) for split in publication.splits],
    }


def _size_category(images: int) -> str:
    """How the hub sorts datasets by size."""
    steps = ["1K", "10K", "100K", "1M", "10M", "100M", "1B"]
    place = len(str(images // 1000)) if images >= 1000 else 0
    return f"n<{steps[0]}" if place == 0 else f"{steps[place - 1]}<n<{steps[place]}"


def _dataset_info(split: PublishedSplit, shards: Sequence[Path]) -> dict[str, Any]:
    size = sum(shard.stat().st_size for shard in shards)
    return {
        "config_name": split.name,
        "features": [_feature(split, field) for field in described(split)],
        "splits": [{"name": split_name(split), "num_bytes": size, "num_examples": len(split.images)}],
        "download_size": size,
        "dataset_size": size,
    }


def _feature(split: PublishedSplit, field: pa.Field) -> dict[str, Any]:
    """A column as the front matter describes it."""
    if field.name == "image":
        return {"name": field.name, "dtype": "image"}
    if field.name == "category_id":
        names = {str(number): name for number, name in enumerate(split.categories.names)}
        return {"name": field.name, "dtype": {"class_label": {"names": names}}}
    if pa.types.is_list(field.type):
        inner = field.type.value_type
        if pa.types.is_struct(inner):
            return {"name": field.name, "list": [_feature(split, one) for one in inner]}
        return {"name": field.name, "list": type_name(inner)}
    return {"name": field.name, "dtype": type_name(field.type)}


def _splits(publication: Publication) -> str:
    rows = []
    for split in publication.splits:
        shown = len(set(split.objects.category))
        counts = (len(split.images), len(split.objects), shown)
        source = f"{split.dataset} ({split.subset})"
        rows.append((f"`{split.name}`", source, split.distance, *(f"{count:,}" for count in counts)))
    return _table(("Configuration", "Source", "Distance", "Images", "Objects", "Categories"), rows, numbers=3)


def _columns(publication: Publication) -> list[str]:
    wanted = dict.fromkeys(name for split in publication.splits for name in described(split).names)
    table = _table(("Column", "What"), [(f"`{name}`", COLUMNS[name]) for name in wanted])
    first = publication.splits[0]
    code = f'load_dataset(FOLDER_OR_NAME, "{first.name}", split="{split_name(first)}")'
    return [table, f"Read one configuration with the library `datasets`:\n\n```python\n{code}\n```"]


def _categories(split: PublishedSplit) -> str:
    counts = category_counts(split.objects)
    rows = [(one.category, f"{one.objects:,}", f"{one.images:,}") for one in counts[:SHOWN]]
    rest = counts[SHOWN:]
    if rest:
        rows.append((f"{len(rest)} others", f"{sum(one.objects for one in rest):,}", ""))
    return f"### {split.name}\n\n{_table(('Category', 'Objects', 'Images'), rows, numbers=2)}"


def _similarity(publication: Publication) -> list[str]:
    keys = ("similarity", "median", "low", "high")
    rows = [
        (f"`{name}`", *(f"{figures[key]:.3f}" if key in figures else "" for key in keys))
        for name, figures in publication.similarity.items()
    ]
    text = (
        "The largest cosine between the CLIP embedding of an image and those of images of "
        f"{publication.benchmark.id}, summed up over the images of a split."
    )
    return [text, _table(("Configuration", "Mean", "Median", "5%", "95%"), rows, numbers=4)]


def _fates(publication: Publication) -> str:
    sources = {(split.dataset, split.subset) for split in publication.splits}
    rows = [
        (f"{one.dataset} ({one.subset})", one.fate, one.reason, f"{one.images:,}")
        for one in fate_counts(publication.fates)
        if (one.dataset, one.subset) in sources
    ]
    if not rows:
        return "All images of the sources are here: no rule chose among them."
    return _table(("Source", "What became of it", "What decided", "Images"), rows, numbers=1)


def _datasheet(publication: Publication) -> list[str]:
    figures = _figures(publication)
    parts = []
    for section, questions in groupby(datasheet(), key=lambda question: question.section):
        parts.append(f"### {section}")
        parts += [_answered(question, figures, publication) for question in questions]
    return parts


def _answered(question: Question, figures: Mapping[str, str], publication: Publication) -> str:
    """A question with what the tables and the publisher say; with a place for words where neither does."""
    said = [question.answer.format_map(figures).strip(), publication.words.answers.get(question.key, "").strip()]
    answer = "\n\n".join(filter(None, said))
    return f"**{question.text}**\n\n{answer or f'*Not answered yet (`{question.key}`).*'}"


def _figures(publication: Publication) -> dict[str, str]:
    """What stands in the places of the datasheet's answers."""
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
    considered = [one for one in fate_counts(publication.fates) if (one.dataset, one.subset) in sources]
    removed = sum(one.images for one in considered if one.fate == "removed")
    if not considered:
        return ""
    verb = "was" if removed == 1 else "were"
    return f"Of {_images(sum(one.images for one in considered))} there, {removed:,} {verb} removed."


def _people(publication: Publication) -> str:
    fates = publication.fates
    decided = fates.decided_by != ""
    if not decided.any():
        return "No person has looked at the images."
    reviewers = {name.strip() for names in fates.decided_by[decided] for name in names.split(",")}
    counted = f"{int(decided.sum()):,} of {len(fates):,} images of the sources"
    return f"People decided on {counted} (reviewers: {len(reviewers)})."


def _use(splits: Iterable[PublishedSplit]) -> str:
    names = [split.name for split in splits if split.distance != "ID"]
    return f"{', '.join(names)}: for tests only; none is for training." if names else "Those of the ID dataset."


def _not_for(publication: Publication) -> str:
    if any(split.distance != "ID" for split in publication.splits):
        return "Training: a detector that has seen unknown objects does not show what it does with them."
    return "Anything that its source does not allow."


def _credits(splits: Sequence[PublishedSplit]) -> str:
    images = sum(len(split.images) for split in splits)
    known = sum(bool(split.credit(row).author) for split in splits for row in range(len(split.images)))
    return f"The author of {known:,} of {_images(images)} is known from the files of the sources."


def _image_licences(splits: Sequence[PublishedSplit]) -> str:
    """Which licences the images have, or plainly that it is not known."""
    licences = Counter(split.credit(row).license for split in splits for row in range(len(split.images)))
    unknown = licences.pop("", 0)
    parts = [f"{name} ({_images(count)})" for name, count in sorted(licences.items())]
    said = [f"Images keep their own licences: {', '.join(parts)}."] if parts else []
    if unknown:
        said.append(
            f"The licence of {_images(unknown)} is not known, as the files of their datasets that were read do not say "
            "it: look it up at the source before you pass them on."
        )
    return " ".join(said)


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table whose last `numbers` columns are flush right."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in (heads, rule, *rows))


def _cell(text: str) -> str:
    """Text from a dataset as text: it neither ends a cell nor becomes markup."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
