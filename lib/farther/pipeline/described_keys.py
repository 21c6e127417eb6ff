"""The keys of params.yaml in words, from its JSON schema: tables, one per kind of mapping.

The path of a table has names that users choose in capitals: `benchmarks.BENCHMARK.splits.SPLIT`.
`farther list params` and the page params.yaml of the documentation show these tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import yaml

from farther.errors import CLOSE, choose
from farther.pipeline.params_schema import SECTION_BY_NAME, JsonSchema, Schemas, Section

#: Placeholder of an entry's name in paths, by the key that holds the entries.
ENTRY_NAMES = {
    "pools": "POOL",
    "published": "RUN",
    "shifted": "SPLIT",
    "shifted_val": "SPLIT",
    "splits": "SPLIT",
    "subsets": "SPLIT",
}

#: Types of values in words, by their names in JSON schemas.
TYPES = {
    "boolean": "true or false",
    "integer": "integer",
    "null": "null",
    "number": "number",
    "object": "mapping",
    "string": "text",
}

#: Limits of numbers in words, by their names in JSON schemas.
LIMITS = {
    "exclusiveMinimum": ">",
    "minimum": "≥",
    "exclusiveMaximum": "<",
    "maximum": "≤",
}


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of params.yaml.

    Args:
        name: The key.
        type: The type of its value, or the values that it may have.
        is_required: Whether it must be given.
        default: Its default, as YAML has it.
        default_text: The default in words where it is not a value: "the entry's name".
        meaning: What it sets, and in which unit.
        tables: Paths of the tables of the keys within its value; empty where there are none.
    """

    name: str
    type: str
    is_required: bool = False
    default: Any = None
    default_text: str = ""
    meaning: str
    tables: tuple[str, ...] = ()

    @property
    def has_value(self) -> bool:
        """Whether there is a default that YAML can have."""
        return not self.default_text and not self.is_required

    @property
    def default_phrase(self) -> str:
        """The default for a sentence: "required", or "default: 0.5"."""
        if self.is_required:
            return self.written_default
        return f"default: {self.written_default}"

    @property
    def written_default(self) -> str:
        """The default as params.yaml would have it; "required" where there is none."""
        if self.default_text:
            return self.default_text
        if self.is_required:
            return "required"
        text = yaml.safe_dump(
            self.default, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False
        )
        return text.removesuffix("\n").removesuffix("\n...")


@dataclass(frozen=True, kw_only=True)
class KeyTable:
    """The keys of one kind of mapping in params.yaml.

    Args:
        path: Its place: `detectors.RUN.passes.PASS`.
        variant: Which of the mappings there have these keys, where not all have: "kind: crops".
        summary: What it describes, in one sentence.
        text: Further paragraphs.
        keys: Its keys.
        further: Where further keys are listed; empty where there are none.
    """

    path: str
    variant: str = ""
    summary: str = ""
    text: str = ""
    keys: tuple[Key, ...] = ()
    further: str = ""

    @property
    def title(self) -> str:
        """Its path, and the variant."""
        if self.variant:
            return f"{self.path}, {self.variant}"
        return self.path

    @property
    def short_path(self) -> str:
        """Its path without the names that users choose: `detectors.passes`."""
        return short(self.path)


def short(path: str) -> str:
    """A path without the names that users choose.

    >>> short("detectors.RUN.passes.PASS")
    'detectors.passes'
    """
    return ".".join(part for part in path.split(".") if not is_chosen(part))


def is_chosen(part: str) -> bool:
    """Whether a part of a path is a placeholder of names that users choose."""
    return part.isupper()


# Tables from schemas.


class Tables:
    """Collects the tables of a section.

    Args:
        schemas: The definitions that the section's schema refers to.

    Attributes:
        found: The tables, in the order of the keys.
    """

    def __init__(self, schemas: Schemas):
        self._schemas = schemas
        self._path_by_keys: dict[str, str] = {}
        self.found: list[KeyTable] = []

    def add(self, path: str, schema: JsonSchema) -> tuple[str, ...]:
        """Adds the tables of the mappings in a value; for the same keys, no second one.

        Args:
            path: The value's place in params.yaml.
            schema: Its schema.

        Returns:
            Paths of the tables of the value itself, or of its entries.
        """
        resolved = self._schemas.resolve(schema)
        entry = _entry_of(resolved)
        if "properties" in resolved and "x-name" not in resolved:
            keys = json.dumps(resolved["properties"], sort_keys=True)
            if keys not in self._path_by_keys:
                self._path_by_keys[keys] = path
                self._add_table(path, resolved)
            return (self._path_by_keys[keys],)
        if entry is not None:
            place = resolved.get("x-name") or ENTRY_NAMES.get(path.rpartition(".")[2], "ENTRY")
            return self.add(f"{path}.{place}", entry)
        paths: list[str] = []
        for alternative in resolved.get("anyOf") or resolved.get("oneOf") or []:
            paths += self.add(path, alternative)
        if len(paths) > 1:
            self._tell_apart(paths)
        return tuple(dict.fromkeys(paths))

    def _add_table(self, path: str, schema: JsonSchema) -> None:
        """Adds the table of a mapping, those of its variants, and those within it."""
        position = len(self.found)
        keys = self._keys(path, schema)
        summary, _, text = schema.get("description", "").partition("\n\n")
        table = KeyTable(
            path=path,
            summary=_OF_PARAMS.sub("", as_written(summary)),
            text=as_written(text),
            keys=tuple(keys),
            further=schema.get("x-further", ""),
        )
        if "x-further" not in schema:
            for case in schema.get("allOf", ()):
                self._add_variant(path, case, schema)
        self.found.insert(position, table)

    def _add_variant(self, path: str, case: JsonSchema, common: JsonSchema) -> None:
        """Adds the table of the keys that only one kind of mapping has."""
        ((tag, value),) = case["if"]["properties"].items()
        schema = self._schemas.resolve(case["then"])
        own = {}
        for name, key in schema["properties"].items():
            if name != tag and key != common["properties"].get(name):
                own[name] = key
        summary, _, text = schema.get("description", "").partition("\n\n")
        position = len(self.found)
        table = KeyTable(
            path=path,
            variant=f"{tag}: {value['const']}",
            summary=_OF_PARAMS.sub("", as_written(summary)),
            text=as_written(text),
            keys=tuple(self._keys(path, {**schema, "properties": own})),
        )
        self.found.insert(position, table)

    def _keys(self, path: str, schema: JsonSchema) -> list[Key]:
        """The keys of a mapping; adds the tables within their values."""
        keys = []
        for name, value in schema["properties"].items():
            key = Key(
                name=name,
                type=type_text(value, self._schemas),
                is_required=name in schema.get("required", ()),
                default=value.get("default"),
                default_text=value.get("x-default", ""),
                meaning=as_written(value.get("description", "")),
                tables=self.add(f"{path}.{name}", value),
            )
            keys.append(key)
        return keys

    def _tell_apart(self, paths: Sequence[str]) -> None:
        """Names each of several forms of an entry by the first of its keys."""
        for position, table in enumerate(self.found):
            if table.path in paths and not table.variant:
                variant = f"with the key {table.keys[0].name}"
                self.found[position] = replace(table, variant=variant)


def _entry_of(schema: JsonSchema) -> JsonSchema | None:
    """The schema of the entries of a list, or of a mapping whose keys are names; else None."""
    entry = schema.get("additionalProperties")
    if isinstance(entry, dict) and "x-name" in schema:
        return entry
    if "properties" in schema:
        return None
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            return dict(schema[key])
    return None


#: What the first sentence of a docstring says of the place in params.yaml.
_OF_PARAMS = re.compile(r": (?:an entry of the )?section `[\w.]+` of params\.yaml")


def as_written(text: str) -> str:
    """Text of a docstring for readers of YAML.

    Python's None becomes null, and references to modules are left out.

    >>> as_written("Its rule; None for none; see `farther.methods.tau`.")
    'Its rule; null for none.'
    """
    without_references = re.sub(r"; see `farther\.[\w.]+`", "", text)
    return re.sub(r"\bNone\b", "null", without_references)


# Types in words.


def type_text(schema: JsonSchema, schemas: Schemas | None = None) -> str:
    """The type of a value in words; values that may be written are in backticks.

    >>> type_text({"enum": ["local", "ray"]})
    '`local` or `ray`'
    >>> positive = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    >>> type_text({"anyOf": [positive, {"type": "null"}]})
    'number > 0, ≤ 1 or null'
    >>> type_text({"type": "array", "items": {"type": "integer"}})
    'list (integer)'
    """
    alternatives = list(dict.fromkeys(_alternatives(schema, schemas or Schemas())))
    if "null" in alternatives:
        alternatives.remove("null")
        alternatives.append("null")
    if len(alternatives) == 1:
        return alternatives[0]
    return f"{', '.join(alternatives[:-1])} or {alternatives[-1]}"


def _alternatives(schema: JsonSchema, schemas: Schemas) -> Iterator[str]:
    """The forms that a value may have."""
    resolved = schemas.resolve(schema)
    if "enum" in resolved or "const" in resolved:
        for value in resolved.get("enum", [resolved.get("const")]):
            yield f"`{value}`"
        return
    inner = resolved.get("anyOf", resolved.get("oneOf"))
    if inner is not None:
        for alternative in inner:
            yield from _alternatives(alternative, schemas)
        return
    kinds = resolved.get("type", "any value")
    if isinstance(kinds, str):
        kinds = [kinds]
    for kind in kinds:
        yield _kind_text(kind, resolved, schemas)


def _kind_text(kind: str, schema: JsonSchema, schemas: Schemas) -> str:
    if kind == "array":
        return _list_text(schema, schemas)
    if kind in ("integer", "number"):
        return kind + _range_text(kind, schema)
    if kind == "string" and schema.get("format") == "path":
        return "path"
    value = schema.get("additionalProperties")
    if kind == "object" and isinstance(value, dict) and "x-name" not in schema:
        inner = type_text(value, schemas)
        if inner != "any value" and not inner.startswith("mapping"):
            return f"mapping (name: {inner})"
    return TYPES.get(kind, kind)


def _list_text(schema: JsonSchema, schemas: Schemas) -> str:
    """A list of any length, or of a number of items."""
    items = schema.get("prefixItems")
    if items:
        return f"list of {len(items)} ({type_text(items[0], schemas)})"
    size = ""
    if schema.get("minItems"):
        size = f" of at least {schema['minItems']}"
    return f"list{size} ({type_text(schema['items'], schemas)})"


def _range_text(kind: str, schema: JsonSchema) -> str:
    """The limits of a number: " from 0 to 1", " > 0, ≤ 1"; empty without any."""
    limits = {}
    for name, sign in LIMITS.items():
        if name in schema:
            limits[sign] = schema[name]
    if kind == "integer" and ">" in limits:
        limits["≥"] = limits.pop(">") + 1
    if set(limits) == {"≥", "≤"}:
        return f" from {limits['≥']:g} to {limits['≤']:g}"
    texts = [f"{sign} {limit:g}" for sign, limit in limits.items()]
    if not texts:
        return ""
    return f" {', '.join(texts)}"


# Tables by their names.


def tables_of(section: Section) -> list[KeyTable]:
    """The tables of a section."""
    schemas = Schemas()
    return tables_of_schema(section.name, section.make(schemas), schemas)


def tables_of_schema(path: str, schema: JsonSchema, schemas: Schemas) -> list[KeyTable]:
    """The tables of a part of params.yaml.

    Args:
        path: Its place.
        schema: Its schema.
        schemas: The definitions that the schema refers to.
    """
    tables = Tables(schemas)
    if "x-name" in schema and "properties" not in _entry_mapping(schema, schemas):
        key = Key(
            name=schema["x-name"],
            type=type_text(schema["additionalProperties"], schemas),
            default_text=schema["additionalProperties"].get("x-default", ""),
            meaning=schema["additionalProperties"]["description"],
        )
        return [KeyTable(path=path, keys=(key,))]
    tables.add(path, schema)
    return tables.found


def _entry_mapping(schema: JsonSchema, schemas: Schemas) -> JsonSchema:
    return schemas.resolve(schema["additionalProperties"])


def find_tables(name: str) -> list[KeyTable]:
    """The tables of a section or of a part of one; for a key, its row and the tables in its value.

    Args:
        name: `evaluate`, `evaluate.proposals`, `detectors.passes`, `threshold.rule`; names that
            users choose may be left out, or be written: `detectors.voc-vos.passes.crop`.

    Raises:
        ParameterError: there is no such section or part; the message suggests the nearest one.
    """
    section = SECTION_BY_NAME[
        choose("section", name.partition(".")[0], SECTION_BY_NAME, listed_by="farther list params")
    ]
    tables = tables_of(section)
    wanted = short(name)
    if wanted == section.name:
        return tables
    keys_by_place: dict[str, list[KeyTable]] = {}
    paths: list[str] = []
    for table in tables:
        keys_by_place.setdefault(table.short_path, [])
        paths.append(table.path)
        for key in table.keys:
            row = replace(table, keys=(key,), text="", further="")
            keys_by_place.setdefault(f"{table.short_path}.{key.name}", []).append(row)
            paths.append(f"{table.path}.{key.name}")
    if wanted not in keys_by_place:
        wanted = _place_of(name, paths) or wanted
    if wanted == section.name:
        return tables
    place = choose("parameter", wanted, keys_by_place)
    below = [table for table in tables if f"{table.short_path}.".startswith(f"{place}.")]
    return below or keys_by_place[place]


def _place_of(name: str, paths: Sequence[str]) -> str | None:
    """The short path of a name in which a project's own names are written.

    Args:
        name: `detectors.voc-vos.passes.crop`.
        paths: Paths of tables and of keys.

    Returns:
        None where no path fits, and where the last part is nearly that of a key: it is misspelt.

    >>> paths = ["detectors.RUN", "detectors.RUN.passes", "detectors.RUN.passes.PASS"]
    >>> _place_of("detectors.voc-vos.passes.crop", paths), _place_of("detectors.pases", paths)
    ('detectors.passes', None)
    """
    parts = name.split(".")
    places = [path for path in paths if _fits(parts, path.split("."))]
    if not places:
        return None
    place = places[0]
    if is_chosen(place.split(".")[-1]):
        keys = [path.split(".")[-1] for path in paths if path.startswith(f"{place}.")]
        if get_close_matches(parts[-1], keys, n=1, cutoff=CLOSE):
            return None
    return short(place)


def _fits(parts: Sequence[str], path_parts: Sequence[str]) -> bool:
    """Whether parts are those of a path, with names of a project in the place of capitals."""
    if len(parts) != len(path_parts):
        return False
    for part, path_part in zip(parts, path_parts, strict=True):
        if not part or (part != path_part and not is_chosen(path_part)):
            return False
    return True
