"""The sections of params.yaml: their keys, from the classes that read them, and what reruns.

A section is described by tables of keys, one for each kind of mapping in it. The path of a table
has names that users choose in capitals: `benchmarks.BENCHMARK.splits.SPLIT`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticUndefined

from farther.code import CODE
from farther.documentation import arguments, summary_and_text
from farther.errors import CLOSE, choose
from farther.pipeline.dvc_file import ROOT
from farther.pipeline.value_types import ENTRIES_OF, nested_classes, type_text
from farther.registry import Registry
from farther.stage_digests import ENTRY_KEYS
from farther.tables.documents import read_yaml

#: The default of a key that must be given.
REQUIRED: Any = PydanticUndefined
#: Placeholder of an entry's name in the title of a table, by the key that holds the entries.
CHOSEN_NAMES = {
    "pools": "POOL",
    "published": "RUN",
    "shifted": "SPLIT",
    "shifted_val": "SPLIT",
    "splits": "SPLIT",
    "subsets": "SPLIT",
}
#: An entry of a section, as stages are addressed by it: `infer@RUN`.
ENTRIES = {
    "benchmarks": "BENCHMARK",
    "datasets": "DATASET",
    "derived": "DATASET",
    "detectors": "RUN",
    "enrich": "BENCHMARK",
}


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of params.yaml.

    Args:
        name: The key.
        type: The type of its value, or the values that it may have.
        default: Its default, as YAML has it; `REQUIRED` where it must be given.
        default_text: The default in words where it is not a value: "the entry's name".
        meaning: What it sets, and in which unit.
        tables: Paths of the tables of the keys within its value; empty where there are none.
    """

    name: str
    type: str
    default: Any = REQUIRED
    default_text: str = ""
    meaning: str
    tables: tuple[str, ...] = ()

    @property
    def has_value(self) -> bool:
        """Whether there is a default that YAML can have."""
        return not self.default_text and self.default is not REQUIRED

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return not self.default_text and self.default is REQUIRED

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
        cls: The class that reads it; None where a function does.
    """

    path: str
    variant: str = ""
    summary: str = ""
    text: str = ""
    keys: tuple[Key, ...] = ()
    further: str = ""
    cls: type | None = None

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


@dataclass(frozen=True)
class Section:
    """A section of params.yaml.

    Args:
        name: Its name.
        summary: What it sets, in one sentence.
        load: Makes its tables. It imports the classes behind them, which may take seconds.
    """

    name: str
    summary: str
    load: Callable[[], list[KeyTable]]


#: What the first sentence of a docstring says of the place in params.yaml.
_OF_PARAMS = re.compile(r": (?:an entry of the )?section `[\w.]+` of params\.yaml")


def short(path: str) -> str:
    """A path without the names that users choose.

    >>> short("detectors.RUN.passes.PASS")
    'detectors.passes'
    """
    return ".".join(part for part in path.split(".") if not _is_chosen(part))


def _is_chosen(part: str) -> bool:
    """Whether a part of a path stands for names that users choose, or for the items of a list."""
    return part.isupper()


@cache
def _stages() -> dict[str, Any]:
    """The stages of dvc.yaml by name, without `foreach` and `do`."""
    content = read_yaml(ROOT / "dvc.yaml")
    return {name: stage.get("do", stage) for name, stage in content["stages"].items()}


def after_any_change() -> tuple[str, ...]:
    """The stages that depend on the file params.yaml: they run after each change of it."""
    return tuple(
        name for name, stage in _stages().items() if "params.yaml" in stage.get("deps", ())
    )


def reruns(path: str) -> tuple[str, ...]:
    """The stages that DVC reruns when a part of params.yaml changes.

    The stages that depend on their outputs follow where these change.

    Args:
        path: A section or a part of it: `inference`, `embed.encoder`, `detectors.RUN.passes.PASS`.

    Returns:
        Their names; `infer@RUN` where only those of the changed entry rerun. Empty for a part that
        commands alone read.

    >>> reruns("threshold"), reruns("embed.images"), reruns("review")
    (('fit',), ('embed',), ())
    """
    names = []
    for name, stage in _stages().items():
        for parameter in _parameters(stage):
            if _overlaps(parameter, path):
                names.append(_address(name, parameter))
        if f"${{{path}}}" in stage.get("deps", ()):
            names.append(name)
    if not names and path.partition(".")[0] in after_any_change():
        names.append(path.partition(".")[0])
    return tuple(dict.fromkeys(names))


def _parameters(stage: Mapping[str, Any]) -> Iterator[str]:
    """The parts of params.yaml that a stage depends on.

    Entries without titles have digests in artifacts/code.json.
    """
    for parameter in stage.get("params", ()):
        if isinstance(parameter, str):
            yield parameter
            continue
        for key in parameter[CODE.as_posix()]:
            if key.partition(".")[0] in ENTRY_KEYS:
                yield key


def _overlaps(parameter: str, path: str) -> bool:
    """Whether a parameter in dvc.yaml is a part of a path, or the other way round."""
    pairs = zip(parameter.split("."), path.split("."), strict=False)
    return all(key in (part, "${key}") or _is_chosen(part) for key, part in pairs)


def _address(stage: str, parameter: str) -> str:
    """The name of a stage, with the entry where it depends on one entry of a section alone."""
    if "${key}" in parameter:
        return f"{stage}@{ENTRIES[parameter.partition('.')[0]]}"
    return stage


def tables_of(
    path: str,
    cls: type,
    *,
    without: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
    tables_by_class: dict[type, str] | None = None,
) -> list[KeyTable]:
    """The table of a class, and those of the classes in its values.

    Args:
        path: Its place in params.yaml.
        cls: A pydantic dataclass or model.
        without: Fields that are not keys there.
        renamed: The key of each field whose name differs.
        tables_by_class: Paths of the classes that have a table already, and get no second one; the
            classes of the new tables are added.
    """
    if tables_by_class is None:
        tables_by_class = {}
    tables_by_class[cls] = path
    description_by_field = arguments(cls)
    keys = []
    nested: list[KeyTable] = []
    for field, info in cls.__pydantic_fields__.items():  # type: ignore[attr-defined]
        if field in without or info.init is False:
            continue
        name = (renamed or {}).get(field, field)
        table_paths = []
        for inner, form in nested_classes(info.annotation):
            place = f"{path}.{name}"
            if form == ENTRIES_OF:
                place += f".{CHOSEN_NAMES[name]}"
            if inner not in tables_by_class:
                nested += tables_of(place, inner, tables_by_class=tables_by_class)
            table_paths.append(tables_by_class[inner])
        if len(table_paths) > 1:
            nested = [_told_apart(table, table_paths) for table in nested]
        key = Key(
            name=name,
            type=type_text(info.annotation, info.metadata),
            default=_default(info),
            meaning=_as_written(description_by_field.get(field, "")),
            tables=tuple(dict.fromkeys(table_paths)),
        )
        keys.append(key)
    summary, text = summary_and_text(cls)
    table = KeyTable(
        path=path,
        summary=_OF_PARAMS.sub("", _as_written(summary)),
        text=_as_written(text),
        keys=tuple(keys),
        cls=cls,
    )
    return [table, *nested]


def _as_written(text: str) -> str:
    """Text of a docstring for readers of YAML.

    Python's None becomes null, and references to modules are left out.

    >>> _as_written("Its rule; None for none; see `farther.methods.tau`.")
    'Its rule; null for none.'
    """
    without_references = re.sub(r"; see `farther\.[\w.]+`", "", text)
    return re.sub(r"\bNone\b", "null", without_references)


def _told_apart(table: KeyTable, paths: Sequence[str]) -> KeyTable:
    """A table of one of several forms of an entry: that with the first of its keys."""
    if table.path not in paths:
        return table
    return replace(table, variant=f"with the key {table.keys[0].name}")


def _default(info: Any) -> Any:
    """The default of a field, as YAML has it."""
    if info.is_required():
        return REQUIRED
    default = info.default
    if default is PydanticUndefined:
        default = info.default_factory()
    return _as_yaml(default)


def _as_yaml(value: Any) -> Any:
    """A value as lists, mappings, texts and numbers; {} for a class of parameters by default."""
    if is_dataclass(value) and not isinstance(value, type):
        if not any(info.is_required() for info in type(value).__pydantic_fields__.values()):  # type: ignore[attr-defined]
            return {}
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [_as_yaml(item) for item in value]
    return value


def variants_of(path: str, tag: Key, registry: Registry[Any], base: type) -> list[KeyTable]:
    """The table of what all kinds of a registry have, and one for each kind.

    Args:
        path: Their place in params.yaml.
        tag: The key whose value is the name of the kind.
        registry: The kinds.
        base: The class that all kinds inherit from.
    """
    common = tables_of(path, base)
    keys = (tag, *common[0].keys)
    tables = [replace(common[0], keys=keys, summary="Keys of every kind.", text=""), *common[1:]]
    for name in registry.names():
        tables += _own_tables(path, f"{tag.name}: {name}", registry.get(name), common)
    return tables


def _own_tables(path: str, variant: str, cls: type, common: Sequence[KeyTable]) -> list[KeyTable]:
    """The tables of a kind, without what it has in common with the others.

    Args:
        path, variant: See `KeyTable`.
        cls: The class of the kind.
        common: The table of the class that it inherits from, and those within that.
    """
    tables_by_class = {table.cls: table.path for table in common if table.cls is not None}
    own, *nested = tables_of(path, cls, tables_by_class=tables_by_class)
    keys = tuple(key for key in own.keys if key not in common[0].keys)
    return [replace(own, variant=variant, keys=keys), *nested]


# The sections. Classes are imported where they are needed: some import PyTorch.


def _datasets() -> list[KeyTable]:
    from farther.datasets.base import Reader

    tag = Key(
        name="format",
        type="name of a format",
        meaning="Format of its annotations: see `farther list datasets`.",
    )
    table, *nested = tables_of("datasets.DATASET", Reader)
    table = replace(
        table,
        keys=(tag, *table.keys),
        summary="A dataset: where its images are, and how its annotations are read.",
        text="Its name is yours; benchmarks and derived datasets refer to it.",
        further="`farther list datasets FORMAT` lists the further keys of a format, and its own "
        "defaults.",
    )
    return [table, *nested]


def _derived() -> list[KeyTable]:
    from farther.derived import cutouts
    from farther.derived.base import KINDS, Derived

    common = tables_of("derived.KIND.DATASET", Derived)
    summary = "Keys of every derived dataset; KIND is `paste`, `corrupt` or `blank`."
    text = "Its name is that of a dataset, which the section `datasets` does not have as well."
    tables = [replace(common[0], summary=summary, text=text), *common[1:]]
    cutouts_path = "derived.paste.DATASET.cutouts"
    for kind in KINDS.names():
        own, *nested = _own_tables(f"derived.{kind}.DATASET", "", KINDS.get(kind), common)
        keys = []
        for key in own.keys:
            is_cutouts = key.name == "cutouts"
            keys.append(replace(key, tables=(cutouts_path,)) if is_cutouts else key)
        tables += [replace(own, keys=tuple(keys)), *nested]
    source = Key(
        name="source",
        type=_names_text(cutouts.SOURCES),
        meaning="Where the cut-outs are from.",
    )
    tables += variants_of(cutouts_path, source, cutouts.SOURCES, cutouts.CutOutSource)
    return tables


def _enrich() -> list[KeyTable]:
    from farther.curation.enrichment import Enrichment

    return tables_of("enrich.BENCHMARK", Enrichment)


def _benchmarks() -> list[KeyTable]:
    from farther.curation.parameters import Benchmark

    return tables_of("benchmarks.BENCHMARK", Benchmark)


def _embed() -> list[KeyTable]:
    from farther.similarity.embed import EmbedSection

    return tables_of("embed", EmbedSection)


def _stratify() -> list[KeyTable]:
    from farther.similarity.stratify import StratifySection

    return tables_of("stratify", StratifySection)


def _review() -> list[KeyTable]:
    key = Key(
        name="BENCHMARK",
        type="name of a run",
        default_text="the benchmark's first run",
        meaning="The run whose detections suggest unlabelled objects to those who review the "
        "benchmark's images. It may be a run on another benchmark.",
    )
    return [KeyTable(path="review", keys=(key,))]


def _detectors() -> list[KeyTable]:
    from farther.detectors import passes, proposals
    from farther.params import RunEntry

    path = "detectors.RUN"
    entry = tables_of(path, RunEntry)[0]
    tables_by_key = {
        "passes": (f"{path}.passes.PASS",),
        "proposals": (f"{path}.proposals.SOURCE",),
        "threshold": ("threshold",),
    }
    required = ("adapter", "benchmark", "weights")
    keys = []
    for key in entry.keys:
        if key.name in required:
            key = replace(key, type=key.type.removesuffix(" or null"), default=REQUIRED)
        keys.append(replace(key, tables=tables_by_key.get(key.name, ())))
    text = "`farther list detectors` lists the adapters, and the `params` of each."
    pass_kind = Key(
        name="kind",
        type=_names_text(passes.PASSES),
        default_text="the entry's name",
        meaning="The kind of extra inference.",
    )
    source_kind = replace(
        pass_kind,
        type=_names_text(proposals.SOURCES),
        meaning="The kind of proposals.",
    )
    return [
        replace(entry, keys=tuple(keys), text=text),
        *variants_of(f"{path}.passes.PASS", pass_kind, passes.PASSES, passes.Pass),
        *variants_of(f"{path}.proposals.SOURCE", source_kind, proposals.SOURCES, proposals.Source),
    ]


def _names_text(registry: Registry[Any]) -> str:
    """The names of a registry as the type of a key."""
    *names, last = (f"`{name}`" for name in registry.names())
    return f"{', '.join(names)} or {last}"


def _sources() -> list[KeyTable]:
    key = Key(
        name="NAME",
        type="text",
        default_text="none",
        meaning="Where the checkpoint of the run of this name is from, or (`embed`) the weights of "
        "CLIP; or, below `datasets`, the dataset: `farther doctor` prints it where it is missing.",
    )
    return [KeyTable(path="sources", keys=(key,))]


def _inference() -> list[KeyTable]:
    from farther.images.plan import StreamParams

    table = tables_of("inference", StreamParams)[0]
    summary = "How images go through the detectors. Times and memory depend on it, results do not."
    return [replace(table, summary=summary, text="")]


def _resources() -> list[KeyTable]:
    from farther.pipeline.workers import Resources

    return tables_of("resources", Resources)


def _threshold() -> list[KeyTable]:
    from farther.evaluation.threshold import ThresholdSettings

    return tables_of("threshold", ThresholdSettings)


def _fit() -> list[KeyTable]:
    from farther.scoring.inputs import FitSection

    return tables_of("fit", FitSection)


def _methods() -> list[KeyTable]:
    from farther.scoring.entries import MethodEntry

    path = "methods.METHOD"
    table, *nested = tables_of(
        path, MethodEntry, without=("name", "params"), renamed={"pass_name": "pass"}
    )
    keys = []
    for key in table.keys:
        if key.name == "method":
            key = replace(key, default_text="the entry's name")
        keys.append(key)
    further = "`farther list methods METHOD` lists the parameters of a method, which are keys, too."
    return [replace(table, keys=tuple(keys), further=further), *nested]


def _scoring() -> list[KeyTable]:
    from farther.scoring.device import ScoringSettings

    return tables_of("scoring", ScoringSettings)


def _evaluate() -> list[KeyTable]:
    from farther.evaluation.settings import EvaluationSettings

    return tables_of("evaluate", EvaluationSettings)


def _deploy() -> list[KeyTable]:
    from farther.evaluation.deploy.results import Budget

    return tables_of("deploy", Budget)


def _cost() -> list[KeyTable]:
    from farther.evaluation.cost import CostParams

    return tables_of("cost", CostParams)


def _report() -> list[KeyTable]:
    from farther.report.settings import ReportSettings

    return tables_of("report", ReportSettings)


def _demo() -> list[KeyTable]:
    # The library does not import the demo world; docs/hooks.py adds its table to the page.
    return []


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
    tables = section.load()
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
    if _is_chosen(place.split(".")[-1]):
        keys = [path.split(".")[-1] for path in paths if path.startswith(f"{place}.")]
        if get_close_matches(parts[-1], keys, n=1, cutoff=CLOSE):
            return None
    return short(place)


def _fits(parts: Sequence[str], path_parts: Sequence[str]) -> bool:
    """Whether parts are those of a path, with names of a project in the place of capitals."""
    if len(parts) != len(path_parts):
        return False
    for part, path_part in zip(parts, path_parts, strict=True):
        if not part or (part != path_part and not _is_chosen(path_part)):
            return False
    return True
