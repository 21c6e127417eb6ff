"""The JSON schema of params.yaml, which editors complete and check the file by.

pydantic writes the schema of each class that reads a part of the file: types, limits, defaults, and
descriptions from the docstring. This module puts them together. `farther list params` and the page
params.yaml of the documentation show the same schema (`farther.pipeline.described_keys`).

Three keywords are farther's own; validators ignore them:

    x-name
        placeholder of an entry's name in the path of a table: "RUN"
    x-further
        a sentence on where further keys are listed, which have no tables here
    x-default
        a default in words: "the entry's name"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from farther.errors import plain_name
from farther.naming.extras import AbsentPackagesError
from farther.naming.parameter_checks import add_descriptions
from farther.naming.registry import Registry
from farther.params import NAME

# Imported in functions: the classes of sections, since some import PyTorch.

#: A JSON schema, or a part of one.
JsonSchema = dict[str, Any]

#: The dialect of the schema.
DIALECT = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True)
class Section:
    """A section of params.yaml.

    Args:
        name: Its name.
        summary: What it sets, in one sentence.
        make: Makes its schema. It imports the classes behind it, which may take seconds.
    """

    name: str
    summary: str
    make: Callable[[Schemas], JsonSchema]


class Schemas:
    """The schemas of classes, with the definitions that they refer to.

    Attributes:
        definitions: Name → schema, for `$defs`.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, JsonSchema] = {}

    def of(self, cls: type) -> JsonSchema:
        """The schema of a class of parameters.

        Raises:
            ValueError: two classes that are referred to have one name.
        """
        schema = TypeAdapter(cls).json_schema()
        for name, definition in schema.pop("$defs", {}).items():
            self.define(name, definition)
        schema.pop("title", None)
        return schema

    def define(self, name: str, schema: JsonSchema) -> JsonSchema:
        """Adds a definition, and returns a reference to it.

        Raises:
            ValueError: another schema has the name.
        """
        if self.definitions.setdefault(name, schema) != schema:
            raise ValueError(f"two classes of parameters are called {name!r}: rename one")
        return {"$ref": f"#/$defs/{name}"}

    def resolve(self, schema: JsonSchema) -> JsonSchema:
        """What a reference refers to; another schema as it is."""
        if "$ref" in schema:
            return self.definitions[schema["$ref"].removeprefix("#/$defs/")]
        return schema


# Parts of schemas.


def entries(name: str, entry: JsonSchema) -> JsonSchema:
    """A mapping of names that users choose to entries.

    Args:
        name: Placeholder of an entry's name in paths: "DATASET".
        entry: The schema of an entry.
    """
    return {
        "type": "object",
        "x-name": name,
        "propertyNames": {"pattern": f"^{NAME.pattern}$"},
        "additionalProperties": entry,
    }


def or_null(schema: JsonSchema) -> JsonSchema:
    """A mapping that may be left empty."""
    return {**schema, "type": ["object", "null"]}


def with_keys(schema: JsonSchema, keys: Mapping[str, JsonSchema]) -> JsonSchema:
    """A schema of a mapping with further keys, which come first."""
    return {**schema, "properties": {**keys, **schema["properties"]}}


def tagged(
    title: str,
    tag: str,
    key: JsonSchema,
    variants: Mapping[str, JsonSchema],
    common: JsonSchema,
    schemas: Schemas,
) -> JsonSchema:
    """A mapping one of whose keys says which further keys it has.

    Args:
        title: What it describes: "dataset".
        tag: That key.
        key: Its description.
        variants: Its values, and the schema of the other keys for each.
        common: The schema of the keys that all variants have.
        schemas: The definitions, which get one per variant: "dataset coco".
    """
    cases = []
    for value, variant in variants.items():
        condition = {"required": [tag], "properties": {tag: {"const": value}}}
        with_tag = with_keys(variant, {tag: {"type": "string"}})
        cases.append({"if": condition, "then": schemas.define(f"{title} {value}", with_tag)})
    return {
        **common,
        "additionalProperties": True,  # a variant's own keys; each variant refuses others
        "properties": {tag: {**key, "enum": list(variants)}, **common["properties"]},
        "required": [tag, *common.get("required", ())],
        "allOf": cases,
    }


def named(
    name: str,
    tag: str,
    key: JsonSchema,
    variants: Mapping[str, JsonSchema],
    common: JsonSchema,
    schemas: Schemas,
) -> JsonSchema:
    """Entries whose names say which keys they have, unless a key of the entry says it.

    Args:
        name: Placeholder of an entry's name in paths.
        tag, key, variants, common: See `tagged`.
        schemas: The definitions, which get those of the variants.
    """
    title = name.lower()
    by_tag = schemas.define(title, tagged(title, tag, key, variants, common, schemas))
    has_tag = {"type": "object", "required": [tag]}
    properties = {}
    for value in variants:
        of_variant = {"$ref": f"#/$defs/{title} {value}"}
        properties[value] = {"if": has_tag, "then": by_tag, "else": of_variant}
    return {**entries(name, by_tag), "properties": properties}


def classes_of(registry: Registry[Any]) -> dict[str, type | None]:
    """The class behind each name of a registry; None where its packages are not installed."""
    class_by_name: dict[str, type | None] = {}
    for name in registry.names():
        try:
            class_by_name[name] = registry.get(name)
        except AbsentPackagesError:
            class_by_name[name] = None
    return class_by_name


def variants_of(schemas: Schemas, registry: Registry[Any]) -> dict[str, JsonSchema]:
    """The schema of the class behind each name of a registry.

    Of a class whose packages are not installed, any keys are valid.
    """
    schema_by_name = {}
    for name, cls in classes_of(registry).items():
        schema_by_name[name] = {"properties": {}} if cls is None else schemas.of(cls)
    return schema_by_name


# The sections.


def _demo(schemas: Schemas) -> JsonSchema:
    # The library does not import the demo world; docs/hooks.py adds its schema to the page.
    return {"type": "object", "properties": {}}


def _datasets(schemas: Schemas) -> JsonSchema:
    from farther.datasets.base import FORMATS, Reader

    key = {"description": "Format of its annotations: see `farther list datasets`."}
    entry = tagged(
        "dataset", "format", key, variants_of(schemas, FORMATS), schemas.of(Reader), schemas
    )
    entry["description"] = (
        "A dataset: where its images are, and how its annotations are read.\n\n"
        "Its name is yours; benchmarks and derived datasets refer to it."
    )
    entry["x-further"] = (
        "`farther list datasets FORMAT` lists the further keys of a format, and its own defaults."
    )
    return entries("DATASET", entry)


def _derived(schemas: Schemas) -> JsonSchema:
    from farther.derived.base import KINDS
    from farther.derived.cutouts import SOURCES, CutOutSource

    key = {"description": "Where the cut-outs are from."}
    sources = variants_of(schemas, SOURCES)
    cutouts = tagged("cutouts", "source", key, sources, schemas.of(CutOutSource), schemas)
    properties = {}
    for kind, cls in classes_of(KINDS).items():
        entry = {"properties": {}} if cls is None else schemas.of(cls)
        if "cutouts" in entry["properties"]:
            description = entry["properties"]["cutouts"]["description"]
            entry["properties"]["cutouts"] = {**cutouts, "description": description}
        summary = entry.get("description", "").partition("\n\n")[0]
        properties[kind] = {**or_null(entries("DATASET", entry)), "description": summary}
    return {
        "type": "object",
        "description": "Datasets made from images of other ones.\n\nThe name of an entry is "
        "that of a dataset, which the section `datasets` does not have as well.",
        "properties": properties,
        "additionalProperties": False,
    }


def _enrich(schemas: Schemas) -> JsonSchema:
    from farther.curation.enrichment import Enrichment

    return entries("BENCHMARK", or_null(schemas.of(Enrichment)))


def _benchmarks(schemas: Schemas) -> JsonSchema:
    from farther.curation.parameters import Benchmark

    return entries("BENCHMARK", schemas.of(Benchmark))


def _embed(schemas: Schemas) -> JsonSchema:
    from farther.similarity.embed import EmbedSection

    return schemas.of(EmbedSection)


def _stratify(schemas: Schemas) -> JsonSchema:
    from farther.similarity.stratify import StratifySection

    return schemas.of(StratifySection)


def _review(schemas: Schemas) -> JsonSchema:
    run = {
        "type": "string",
        "x-default": "the benchmark's first run",
        "description": "The run whose detections suggest unlabelled objects to those who review "
        "the benchmark's images. It may be a run on another benchmark.",
    }
    return entries("BENCHMARK", run)


def _detectors(schemas: Schemas) -> JsonSchema:
    from farther.detectors.base import registry
    from farther.detectors.passes import PASSES, Pass
    from farther.detectors.proposal_sources import SOURCES, Source
    from farther.params import RunEntry

    entry = schemas.of(RunEntry)
    add_descriptions(entry, RunEntry)
    entry["additionalProperties"] = False
    entry["required"] = ["adapter", "benchmark", "weights"]
    properties = entry["properties"]
    for name in entry["required"]:
        properties[name] = {"type": "string", "description": properties[name]["description"]}
    properties["adapter"]["enum"] = registry.names()
    properties["threshold"] = {
        **schemas.define("ThresholdSettings", _threshold(schemas)),
        "description": properties["threshold"]["description"],
    }
    kind = {"x-default": "the entry's name", "description": "The kind of extra inference."}
    passes = {name: or_null(keys) for name, keys in variants_of(schemas, PASSES).items()}
    properties["passes"] = {
        **or_null(named("PASS", "kind", kind, passes, schemas.of(Pass), schemas)),
        "description": properties["passes"]["description"],
    }
    kind = {"x-default": "the entry's name", "description": "The kind of proposals."}
    sources = {name: or_null(keys) for name, keys in variants_of(schemas, SOURCES).items()}
    properties["proposals"] = {
        **or_null(named("SOURCE", "kind", kind, sources, schemas.of(Source), schemas)),
        "description": properties["proposals"]["description"],
    }
    entry["allOf"] = []
    for name, params in variants_of(schemas, registry).items():
        own_keys = deepcopy(params)
        own_keys["properties"].pop("weights", None)
        own_keys["required"] = [key for key in own_keys.get("required", ()) if key != "weights"]
        of_adapter = schemas.define(f"params {name}", or_null(own_keys))
        condition = {"required": ["adapter"], "properties": {"adapter": {"const": name}}}
        entry["allOf"].append({"if": condition, "then": {"properties": {"params": of_adapter}}})
    entry["x-further"] = "`farther list detectors` lists the adapters, and the `params` of each."
    return entries("RUN", entry)


def _sources(schemas: Schemas) -> JsonSchema:
    text = {
        "type": ["string", "object"],
        "x-default": "none",
        "description": "Where the checkpoint of the run of this name is from, or (`embed`) the "
        "weights of CLIP; or, below `datasets`, the dataset: `farther doctor` prints it where it "
        "is missing.",
    }
    return entries("NAME", text)


def _inference(schemas: Schemas) -> JsonSchema:
    from farther.images.plan import StreamParams

    return schemas.of(StreamParams)


def _threshold(schemas: Schemas) -> JsonSchema:
    from farther.evaluation.threshold import ThresholdSettings

    return schemas.of(ThresholdSettings)


def _fit(schemas: Schemas) -> JsonSchema:
    from farther.scoring.inputs import FitSection

    return schemas.of(FitSection)


def _methods(schemas: Schemas) -> JsonSchema:
    from farther.methods.base import METHODS
    from farther.scoring.entries import MethodEntry

    common = schemas.of(MethodEntry)
    properties = common["properties"]
    properties.pop("name")
    properties.pop("params")
    properties["pass"] = properties.pop("pass_name")
    method = properties.pop("method")
    method = {"description": method["description"], "x-default": "the entry's name"}
    common["required"] = []

    variants = {}
    for name, variant in variants_of(schemas, METHODS).items():
        variants[name] = or_null(with_keys(variant, properties))
    section = named("METHOD", "method", method, variants, common, schemas)
    by_method = schemas.definitions["method"]
    by_method["required"] = []
    by_method["properties"]["method"].pop("enum")
    by_method["anyOf"] = [{"required": [key]} for key in ("method", "search", "oracle")]
    by_method["x-further"] = (
        "`farther list methods METHOD` lists the parameters of a method, which are keys, too."
    )

    all_names = []
    patterns = {}
    aliases_by_name = METHODS.aliases
    for name, case in zip(variants, by_method["allOf"], strict=True):
        names = [name, *aliases_by_name[name]]
        all_names += names
        pattern = any_spelling(names)
        patterns[pattern] = section["properties"][name]
        spelled = {"pattern": pattern, "description": f"`{name}`"}
        case["if"]["properties"]["method"] = spelled
    by_method["properties"]["method"]["pattern"] = any_spelling(all_names)
    section["patternProperties"] = patterns
    return section


def any_spelling(names: Sequence[str]) -> str:
    """A regular expression for names in any case, with hyphens, underscores and spaces alike.

    >>> any_spelling(["knn"])
    '^([kK][^A-Za-z0-9]*[nN][^A-Za-z0-9]*[nN])$'
    """
    alternatives = []
    for name in names:
        letters = []
        for letter in plain_name(name):
            letters.append("".join(["[", *dict.fromkeys((letter, letter.upper())), "]"]))
        alternatives.append("[^A-Za-z0-9]*".join(letters))
    return f"^({'|'.join(dict.fromkeys(alternatives))})$"


def _scoring(schemas: Schemas) -> JsonSchema:
    from farther.scoring.device import ScoringSettings

    return schemas.of(ScoringSettings)


def _evaluate(schemas: Schemas) -> JsonSchema:
    from farther.evaluation.settings import EvaluationSettings

    return schemas.of(EvaluationSettings)


def _deploy(schemas: Schemas) -> JsonSchema:
    from farther.evaluation.deploy.results import Budget

    return schemas.of(Budget)


def _cost(schemas: Schemas) -> JsonSchema:
    from farther.evaluation.cost import CostParams

    return schemas.of(CostParams)


def _report(schemas: Schemas) -> JsonSchema:
    from farther.report.settings import ReportSettings

    return schemas.of(ReportSettings)


def _resources(schemas: Schemas) -> JsonSchema:
    from farther.pipeline.workers import Resources

    return schemas.of(Resources)


#: All sections, in the order of params.yaml.
SECTIONS = (
    Section("demo", "The drawings of the demo world; in the demo's own params.yaml only.", _demo),
    Section("datasets", "Folder and format of each dataset.", _datasets),
    Section("derived", "Datasets made from images of other ones: pasted, corrupted.", _derived),
    Section("enrich", "Candidates for OOD splits from larger pools of images.", _enrich),
    Section("benchmarks", "An ID dataset, and the splits it is tested on.", _benchmarks),
    Section("embed", "The CLIP that embeds all images.", _embed),
    Section("stratify", "Similarity of the images to the ID images; near-duplicates.", _stratify),
    Section("review", "The run that suggests unlabelled objects to reviewers.", _review),
    Section("detectors", "The runs: a detector on a benchmark each.", _detectors),
    Section("sources", "Where checkpoints and datasets are from, for `doctor`.", _sources),
    Section("inference", "Batch size, workers and damaged images of inference.", _inference),
    Section("threshold", "The operating threshold t* of the detectors.", _threshold),
    Section("fit", "What methods are fitted on, and their threshold τ.", _fit),
    Section("methods", "The OOD scores that are compared.", _methods),
    Section("scoring", "CPU or GPU for scores.", _scoring),
    Section("evaluate", "Metrics, their intervals, and the curves over t* and τ.", _evaluate),
    Section("deploy", "Limits on the errors of a deployed detector.", _deploy),
    Section("cost", "How many images costs are measured on.", _cost),
    Section("report", "What the report shows.", _report),
    Section("resources", "Runs worked on at the same time; a cluster.", _resources),
)
SECTION_BY_NAME = {section.name: section for section in SECTIONS}


def params_schema() -> JsonSchema:
    """The JSON schema of params.yaml, with the classes of the project's extensions."""
    schemas = Schemas()
    properties = {}
    for section in SECTIONS:
        schema = section.make(schemas)
        properties[section.name] = {**or_null(schema), "description": section.summary}
    # The demo's own section has the keys of a package that the library does not know.
    properties["demo"] = {"type": "object", "description": SECTION_BY_NAME["demo"].summary}
    return {
        "$schema": DIALECT,
        "title": "params.yaml of farther",
        "type": "object",
        "properties": properties,
        "$defs": schemas.definitions,
    }
