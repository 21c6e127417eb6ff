"""The description of a publication in Croissant 1.0: JSON-LD that lists the files and how to read them.

Format: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa

from farther.publication.card import COLUMNS
from farther.publication.contents import Publication, PublishedSplit
from farther.publication.parquet import described
from farther.tables.documents import parse_json

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"

#: Croissant's names of column types.
TYPES = {
    "string": "sc:Text",
    "int32": "sc:Integer",
    "int64": "sc:Integer",
    "double": "sc:Float",
    "bool": "sc:Boolean",
}


def croissant(
    publication: Publication, shards: Mapping[str, Sequence[Path]], folder: Path
) -> dict[str, Any]:
    """The content of `croissant.json`.

    Each Parquet file is a file object with its size and SHA-256; the files of a split are a file
    set; its rows are a record set, and its classes, by their numbers, another. `shards` are the
    Parquet files of each split in `folder`.
    """
    words = publication.words
    described_by = {
        "@context": parse_json(
            files(__package__).joinpath("croissant_context.json").read_text(encoding="utf-8")
        ),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": publication.title,
        "description": words.summary
        or f"Images with objects that are out of the distribution of {publication.benchmark.id}.",
        "license": words.license,
        "url": words.url,
        "version": words.version,
        "datePublished": "" if words.published is None else words.published.isoformat(),
        "creator": [{"@type": "sc:Person", "name": name} for name in words.creators],
        "citeAs": words.citation,
    }
    return {
        **{key: value for key, value in described_by.items() if value},
        "distribution": [
            part
            for split in publication.splits
            for part in _files(split, shards[split.name], folder)
        ],
        "recordSet": [
            part for split in publication.splits for part in (_classes(split), _rows(split))
        ],
    }


def _files(split: PublishedSplit, shards: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """The files of a split, each as a file object, and all as a file set."""
    parquet = {"encodingFormat": "application/x-parquet"}
    objects = [
        {
            **_named("cr:FileObject", path.relative_to(folder).as_posix(), path.name),
            "contentUrl": path.relative_to(folder).as_posix(),
            "contentSize": f"{path.stat().st_size} B",
            **parquet,
            "sha256": _sha256(path),
        }
        for path in shards
    ]
    together = _named(
        "cr:FileSet", f"{split.name}-files", description=f"The Parquet files of {split.name}."
    )
    return [*objects, {**together, **parquet, "includes": f"{split.name}/*.parquet"}]


def _classes(split: PublishedSplit) -> dict[str, Any]:
    """The classes of a split by number, as an enumeration."""
    name = f"{split.name}-categories"
    number, category = f"{name}/id", f"{name}/name"
    return {
        **_named("cr:RecordSet", name, description=f"The classes of {split.dataset}."),
        "dataType": "sc:Enumeration",
        "key": {"@id": number},
        "field": [
            {**_named("cr:Field", number), "dataType": "sc:Integer"},
            {**_named("cr:Field", category), "dataType": "sc:Text"},
        ],
        "data": [
            {number: index, category: text} for index, text in enumerate(split.categories.names)
        ],
    }


def _rows(split: PublishedSplit) -> dict[str, Any]:
    described_by = f"Images of {split.dataset} ({split.subset}), {split.distance}."
    fields = [_field(split, column) for column in described(split)]
    return {**_named("cr:RecordSet", split.name, description=described_by), "field": fields}


def _field(split: PublishedSplit, column: pa.Field) -> dict[str, Any]:
    """A column; a list of records has one subfield per field of a record."""
    made = _named("cr:Field", f"{split.name}/{column.name}", description=COLUMNS[column.name])
    if column.name == "image":
        return {**made, "dataType": "sc:ImageObject", "source": _source(split, "image", "bytes")}
    if not pa.types.is_list(column.type):
        return {**made, "dataType": TYPES[str(column.type)], "source": _source(split, column.name)}
    inner = [_inner(split, column.name, one) for one in column.type.value_type]
    return {**made, "repeated": True, "source": _source(split, column.name), "subField": inner}


def _inner(split: PublishedSplit, column: str, field: pa.Field) -> dict[str, Any]:
    kind = field.type.value_type if pa.types.is_list(field.type) else field.type
    name = f"{split.name}/{column}/{field.name}"
    made = _named("cr:Field", name, description=f"{field.name} of each of {column}")
    made |= {"dataType": TYPES[str(kind)], "source": _source(split, column, field.name)}
    if field.name == "category_id":
        made["references"] = {"field": {"@id": f"{split.name}-categories/id"}}
    return made


def _named(kind: str, identity: str, name: str = "", description: str = "") -> dict[str, Any]:
    """An entry of a type, called like its identity unless it has another name."""
    made = {"@type": kind, "@id": identity, "name": name or identity}
    return {**made, "description": description} if description else made


def _source(split: PublishedSplit, column: str, inner: str = "") -> dict[str, Any]:
    """Source of a field: a column of the split's files, or a field of the records in it."""
    made: dict[str, Any] = {
        "fileSet": {"@id": f"{split.name}-files"},
        "extract": {"column": column},
    }
    return {**made, "transform": {"jsonPath": inner}} if inner else made


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
