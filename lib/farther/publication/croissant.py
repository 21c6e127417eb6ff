"""The description of a publication in Croissant 1.0: JSON-LD of the files and how to read them.

Format: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html
"""

# `mlcroissant` can write such a file, too, but requires rdflib, networkx, pandas and others at run
# time, and its objects take as many lines as these dicts. Tests read the file with it.

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

PARQUET = "application/x-parquet"

#: An object of JSON-LD.
Node = dict[str, Any]


def croissant(publication: Publication, shards: Mapping[str, Sequence[Path]], folder: Path) -> Node:
    """The content of `croissant.json`.

    Each Parquet file is a file object with its size and SHA-256; the files of a split are a file
    set; its rows are a record set, and its classes, by their numbers, another.

    Args:
        publication: The splits and the publisher's statements.
        shards: Parquet files of each split.
        folder: The publication's folder, which contains them.
    """
    distribution = []
    record_sets = []
    for split in publication.splits:
        for path in shards[split.name]:
            distribution.append(_file_object(path, folder))
        distribution.append(_file_set(split))
        record_sets.append(_classes(split))
        record_sets.append(_rows(split))
    return {**_metadata(publication), "distribution": distribution, "recordSet": record_sets}


def _metadata(publication: Publication) -> Node:
    """Context and metadata; fields without a value are left out."""
    words = publication.words
    context = files(__package__).joinpath("croissant_context.json").read_text(encoding="utf-8")
    summary = words.summary
    if not summary:
        summary = (
            f"Images with objects that are out of the distribution of {publication.benchmark.id}."
        )
    fields = {
        "@context": parse_json(context),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": publication.title,
        "description": summary,
        "license": words.license,
        "url": words.url,
        "version": words.version,
        "datePublished": "" if words.published is None else words.published.isoformat(),
        "creator": [{"@type": "sc:Person", "name": name} for name in words.creators],
        "citeAs": words.citation,
    }
    return {name: value for name, value in fields.items() if value}


def _file_object(path: Path, folder: Path) -> Node:
    """A Parquet file with its size and SHA-256."""
    relative = path.relative_to(folder).as_posix()
    return {
        **_node("cr:FileObject", relative, path.name),
        "contentUrl": relative,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": PARQUET,
        "sha256": _sha256(path),
    }


def _file_set(split: PublishedSplit) -> Node:
    """All files of a split."""
    description = f"The Parquet files of {split.name}."
    return {
        **_node("cr:FileSet", f"{split.name}-files", description=description),
        "encodingFormat": PARQUET,
        "includes": f"{split.name}/*.parquet",
    }


def _classes(split: PublishedSplit) -> Node:
    """The classes of a split by number, as an enumeration."""
    name = f"{split.name}-categories"
    number_field = f"{name}/id"
    name_field = f"{name}/name"
    records = []
    for number, category in enumerate(split.categories.names):
        records.append({number_field: number, name_field: category})
    return {
        **_node("cr:RecordSet", name, description=f"The classes of {split.dataset}."),
        "dataType": "sc:Enumeration",
        "key": {"@id": number_field},
        "field": [
            {**_node("cr:Field", number_field), "dataType": "sc:Integer"},
            {**_node("cr:Field", name_field), "dataType": "sc:Text"},
        ],
        "data": records,
    }


def _rows(split: PublishedSplit) -> Node:
    """The rows of a split's files."""
    description = f"Images of {split.dataset} ({split.subset}), {split.distance}."
    fields = [_field(split, column) for column in described(split)]
    return {**_node("cr:RecordSet", split.name, description=description), "field": fields}


def _field(split: PublishedSplit, column: pa.Field) -> Node:
    """A column; a list of records has one subfield per field of a record."""
    node = _node("cr:Field", f"{split.name}/{column.name}", description=COLUMNS[column.name])
    if column.name == "image":
        node["dataType"] = "sc:ImageObject"
        node["source"] = _source(split, "image", "bytes")
    elif pa.types.is_list(column.type):
        node["repeated"] = True
        node["source"] = _source(split, column.name)
        record = column.type.value_type
        node["subField"] = [_subfield(split, column.name, field) for field in record]
    else:
        node["dataType"] = TYPES[str(column.type)]
        node["source"] = _source(split, column.name)
    return node


def _subfield(split: PublishedSplit, column: str, field: pa.Field) -> Node:
    """A field of the records in a column."""
    type_ = field.type
    if pa.types.is_list(type_):
        type_ = type_.value_type
    identity = f"{split.name}/{column}/{field.name}"
    node = _node("cr:Field", identity, description=f"{field.name} of each of {column}")
    node["dataType"] = TYPES[str(type_)]
    node["source"] = _source(split, column, field.name)
    if field.name == "category_id":
        node["references"] = {"field": {"@id": f"{split.name}-categories/id"}}
    return node


def _node(type_: str, identity: str, name: str = "", description: str = "") -> Node:
    """A node of a type; its name is its identity unless it has another one."""
    node = {"@type": type_, "@id": identity, "name": name or identity}
    if description:
        node["description"] = description
    return node


def _source(split: PublishedSplit, column: str, field: str = "") -> Node:
    """Source of a field: a column of the split's files, or a field of the records in it."""
    source: Node = {"fileSet": {"@id": f"{split.name}-files"}, "extract": {"column": column}}
    if field:
        source["transform"] = {"jsonPath": field}
    return source


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
