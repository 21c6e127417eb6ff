"""The dataset card of a publication: `README.md` with metadata for the hub, counts and a datasheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from huggingface_hub import DatasetCard, DatasetCardData

from farther.curation.counts import category_counts, fate_counts
from farther.tools.publication.contents import Publication, PublishedSplit
from farther.tools.publication.datasheet import answered
from farther.tools.publication.parquet import described, split_name, type_name

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


def card(publication: Publication, shards: Mapping[str, Sequence[Path]]) -> str:
    """The text of `README.md`; `shards` are the Parquet files of each split."""
    parts = [f"# {publication.title}"]
    parts += [publication.words.summary] if publication.words.summary else []
    parts += ["## Splits", _splits(publication)]
    parts += ["## Columns", *_columns(publication), "## Categories", *map(_categories, publication.splits)]
    if publication.similarity:
        parts += ["## Similarity to the ID dataset", *_similarity(publication)]
    parts += ["## How images were chosen", _fates(publication)]
    parts += ["## Datasheet", "After Gebru et al., *Datasheets for Datasets* (2021).", *answered(publication)]
    if publication.words.citation:
        parts += ["## Citation", f"```\n{publication.words.citation.strip()}\n```"]
    front = _metadata(publication, shards).to_yaml()
    return str(DatasetCard(f"---\n{front}\n---\n\n" + "\n\n".join(parts) + "\n"))


def _metadata(publication: Publication, shards: Mapping[str, Sequence[Path]]) -> DatasetCardData:
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
        dataset_info=[_dataset_info(split, shards[split.name]) for split in publication.splits],
    )


def _size_category(images: int) -> str:
    """The hub's category for a dataset of this size."""
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
    """A column as the hub's metadata describes it."""
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
    table = _table(("Column", "Meaning"), [(f"`{name}`", COLUMNS[name]) for name in wanted])
    first = publication.splits[0]
    code = f'load_dataset(FOLDER_OR_NAME, "{first.name}", split="{split_name(first)}")'
    return [table, f"Read one configuration with the library `datasets`:\n\n```python\n{code}\n```"]


def _categories(split: PublishedSplit) -> str:
    counts = category_counts(split.objects)
    top = counts.head(SHOWN).iter_rows(named=True)
    rows = [(one["category"], f"{one['objects']:,}", f"{one['images']:,}") for one in top]
    rest = counts[SHOWN:]
    if len(rest):
        rows.append((f"{len(rest)} others", f"{rest['objects'].sum():,}", ""))
    return f"### {split.name}\n\n{_table(('Category', 'Objects', 'Images'), rows, numbers=2)}"


def _similarity(publication: Publication) -> list[str]:
    keys = ("similarity", "median", "low", "high")
    rows = [
        (f"`{name}`", *(f"{values[key]:.3f}" if key in values else "" for key in keys))
        for name, values in publication.similarity.items()
    ]
    text = (
        "The largest cosine between the CLIP embedding of an image and those of images of "
        f"{publication.benchmark.id}, over the images of a split."
    )
    return [text, _table(("Configuration", "Mean", "Median", "5%", "95%"), rows, numbers=4)]


def _fates(publication: Publication) -> str:
    sources = {(split.dataset, split.subset) for split in publication.splits}
    rows = [
        (f"{one['dataset']} ({one['subset']})", one["fate"], one["reason"], f"{one['images']:,}")
        for one in fate_counts(publication.fates).iter_rows(named=True)
        if (one["dataset"], one["subset"]) in sources
    ]
    if not rows:
        return "All images of the sources are included: no rule selected among them."
    return _table(("Source", "Fate", "Decided by", "Images"), rows, numbers=1)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table whose last `numbers` columns are right-aligned."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in (heads, rule, *rows))


def _cell(text: str) -> str:
    """Text from a dataset, escaped so that it neither ends a cell nor becomes markup."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
