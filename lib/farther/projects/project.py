"""Files of a new project: params.yaml, a rules file, and decisions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from farther.curation.decisions import HEADER
from farther.detectors.known_classes import renamed
from farther.errors import ParameterError
from farther.projects.proposals import Lookup, Proposal, Relation, propose
from farther.projects.recognise import Dataset, recognise, recognise_detector
from farther.tables import Header
from farther.tables.folders import resolved

SUBSETS = ("train", "val", "test")


@dataclass(frozen=True)
class Source:
    """A dataset of the project.

    Args:
        name: Its name in params.yaml.
        dataset: As it was recognised.
        proposals: What its categories were taken for.
    """

    name: str
    dataset: Dataset
    proposals: list[Proposal] = field(default_factory=list)

    def of(self, relation: str) -> list[Proposal]:
        """The proposals of a relation, the most similar first."""
        return sorted((one for one in self.proposals if one.relation == relation), key=lambda one: -one.similarity)


def init(
    folder: str | Path,
    id: str | Path,
    ood: Sequence[str | Path],
    detector: str | Path,
    *,
    names: Path,
    wordnet: str | Path | None = None,
    clip: str | None = None,
    force: bool = False,
    log: Callable[[str], None] = print,
) -> Path:
    """Makes a project for one ID dataset, OOD datasets and a detector: params.yaml, rules file and decisions.

    Every proposal is written with a comment where it can be edited.

    Args:
        folder: The project's folder. Parameters of CLIP are written if it has a dvc.yaml with those stages.
        id: Folder of the ID dataset.
        ood: Folders of the OOD datasets.
        detector: A checkpoint, a COCO results file, or a folder of detections.
        names: Folder of `names/classes.yaml` and `similarity/synsets.yaml`: synonyms.
        wordnet: WordNet's `dict` folder, for synonyms and near categories.
        clip: A CLIP for near categories, see `farther.projects.proposals.encoder_params`.
        force: Replace a params.yaml and a rules file that are there.
        log: Takes one line per finding.

    Returns:
        The file of parameters.

    Raises:
        ParameterError: a params.yaml is there, or an OOD dataset has the ID dataset's folder.
        DataError: a format is not known, or a file is damaged.
    """
    folder, params = Path(folder), Path(folder) / "params.yaml"
    if params.exists() and not force:
        raise ParameterError(f"{params} is there already; name another folder, or add --force to replace it")
    lookup = Lookup.open(names, wordnet, clip)
    known = Source(_name(Path(id), []), recognise(resolved(id)))
    entry, header = recognise_detector(resolved(detector), known.dataset)
    found = _mapping(known.dataset, header, lookup)
    id_classes = renamed(header, found).known_classes
    sources = [Source(known.name, known.dataset, propose(known.dataset.categories, id_classes))]
    for path in ood:
        dataset = recognise(resolved(path))
        name = _name(Path(path), [source.name for source in sources])
        sources.append(Source(name, dataset, propose(dataset.categories, id_classes, lookup)))
    benchmark, clip_stages = known.name, (folder / "dvc.yaml").exists()
    written = {
        f"data/benchmarks/{benchmark}.yaml": _rules(id_classes, sources),
        f"data/decisions/{benchmark}.csv": HEADER,
        "params.yaml": _params(sources, {**entry, "classes": found} if found else entry, clip=clip_stages),
    }
    for name, text in written.items():
        file = folder / name
        if name.startswith("data/decisions") and file.exists():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        log(f"wrote {file}")
    for line in _summary(sources, entry, id_classes):
        log(line)
    return params


def _name(path: Path, taken: Sequence[str]) -> str:
    """A dataset's name: that of its folder."""
    name = re.sub(r"\W+", "_", resolved(path).name).strip("_").lower() or "dataset"
    if name in taken:
        name = f"{re.sub(r'[^0-9a-zA-Z]+', '_', resolved(path).parent.name).lower()}_{name}"
    if name in taken:
        raise ParameterError(f"two datasets would be called {name!r}: rename the folder {path}")
    return name


def _mapping(dataset: Dataset, header: Header, lookup: Lookup) -> dict[str, str]:
    """Names of the ID dataset for classes of the detector that have another name there."""
    proposals = propose(header.known_classes, dataset.categories, replace(lookup, clip=None))
    same = {one.category: one.id_class for one in proposals if one.relation == "same"}
    found = {one: other for one, other in same.items() if one != other}
    return {one: other for one, other in found.items() if list(found.values()).count(other) == 1}


def _params(sources: Sequence[Source], entry: Mapping[str, Any], *, clip: bool) -> str:
    """Text of params.yaml."""
    known, others = sources[0], sources[1:]
    subsets, note = _id_subsets(known.dataset.subsets)
    splits = [line for source in others for subset in source.dataset.subsets for line in _splits(source, subset)]
    run = {**entry, "benchmark": known.name}
    lines = [
        "# Parameters of the pipeline, written by `farther init`. `farther doctor` checks them, `dvc repro` runs them.",
        "",
        "# Folder and format of each dataset, as they were recognised. docs/datasets.md describes the formats.",
        "datasets:",
        *(f"  {source.name}: {_flow(source.dataset.entry)}" for source in sources),
        "",
        "# The ID dataset, and the OOD splits: images without ID classes. Distance `farther` takes all of them, `near`",
        "# and `far` those with and without a category that the rules file lists as near.",
        "benchmarks:",
        f"  {known.name}:",
        f"    id: {known.name}",
        f"    rules: data/benchmarks/{known.name}.yaml",
        f"    decisions: data/decisions/{known.name}.csv    # of reviewers (farther review); they override the rules",
        *([f"    # {note}"] if note else []),
        f"    subsets: {_flow(subsets)}",
        "    splits:",
        *(splits or ["      {}"]),
        "",
        "# Datasets made from these: objects pasted in, corrupted images, images without objects (docs/enrichment.md).",
        "derived: {paste: {}, corrupt: {}, blank: {}}",
        "",
        "# The detector. `classes` maps its class names to those of the ID dataset where they differ.",
        "detectors:",
        f"  {known.name}-detector:",
        *(f"    {key}: {_flow(value)}" for key, value in run.items()),
        "",
        "inference: {batch_size: 16}",
        "",
        "# The operating threshold t*: regions below it are discarded before anything is measured.",
        "threshold: {rule: best_f1}",
        "",
        "# The threshold τ of each method: 95% of the ID validation scores are at or above it.",
        "fit: {split: train, calibration_split: val, keep: 0.95}",
        "",
        "# One line per method; `farther methods` lists them. Methods whose inputs the detector lacks are left out.",
        "methods:",
        "  confidence: {}    # the detector's own score: the baseline",
        "  msp: {}",
        "  energy: {}",
        "  knn: {k: 10}",
        "  mahalanobis: {}",
        "  lard_mahalanobis: {}    # of earlier layers: also for YOLO, which has no features of regions",
        "",
        "evaluate: {iou: 0.5, protocol: paper}",
        "# What deploying the detector may cost; `farther choose` answers with a method and thresholds.",
        "deploy: {max_misclassified: 0.01, max_false_alarms: 2, max_recall_loss: 0.01}",
        "cost: {images: 16}",
        "report: {examples: 6}",
    ]
    if clip:
        lines += [
            "",
            "# Similarity of images to the ID images, by CLIP. The demo's model knows drawings only: name another one.",
            "embed:",
            "  weights: data/demo/clip",
            '  encoder: {model: "local-dir:data/demo/clip"}',
            "  images: {batch_size: 64}",
            "stratify: {reference: train}",
            "demo: {}",
        ]
    return "\n".join(lines) + "\n"


def _splits(source: Source, subset: str) -> Iterator[str]:
    """The split of a subset, and in comments those that separate proposed near categories."""
    name = source.name if len(source.dataset.subsets) == 1 else f"{source.name}_{subset}"
    entry = {"dataset": source.name, "subset": subset}
    yield f"      {name}: {_flow({**entry, 'distance': 'farther'})}"
    if source.of("near"):
        yield "      # where the rules file lists near categories, instead:"
        yield from (f"      # {name}_{one}: {_flow({**entry, 'distance': one})}" for one in ("near", "far"))


def _id_subsets(subsets: Sequence[str]) -> tuple[dict[str, str], str]:
    """The subset of each ID split, and a remark where there are not three."""
    if set(SUBSETS) <= set(subsets):
        return {name: name for name in SUBSETS}, ""
    train = "train" if "train" in subsets else subsets[0]
    others = [name for name in subsets if name != train] or [train]
    val, test = ("val" if "val" in others else others[0]), ("test" if "test" in others else others[-1])
    note = ""
    if train == val == test:
        note = f"Statistics, thresholds and results are all of {test!r}: other subsets would make results independent."
    elif val == test:
        note = f"Thresholds and results are both of {test!r}: a third subset would make the results independent."
    return dict(zip(SUBSETS, (train, val, test), strict=True)), note


def _rules(id_classes: Sequence[str], sources: Sequence[Source]) -> str:
    """Text of the rules file."""
    lines = [
        "# Which categories of the datasets are classes that the detector knows. Written by `farther init`: edit it.",
        "# For an OOD image, the first of these decides: an ID class or an overlapping category is labelled: left out;",
        "# a near category is labelled: near; others only: far. docs/your-own-benchmark.md describes each part.",
        "",
        "# Each class of the detector, and its names in each dataset.",
        "id_classes:",
    ]
    for name in id_classes:
        same = {source.name: [one for one in source.of("same") if one.id_class == name] for source in sources}
        named = {key: [one.category for one in value] for key, value in same.items() if value}
        reasons = dict.fromkeys(
            f"{key}: {one.category} is {one.reason}"
            for key, value in same.items()
            for one in value
            if one.category != name
        )
        lines.append(f"  {_flow(name)}: {_flow(named)}{'    # ' if reasons else ''}{'; '.join(reasons)}")
    lines += [
        "",
        "# Lines that begin with `# proposed` are not applied: delete what is wrong, and put the rest of the line in",
        "# place of the line above.",
        "protocols:",
        "  paper:",
        "    # Categories that contain or may be an ID class, by dataset and ID class: their images are left out.",
        "    overlap:",
        *_listed(sources[1:], "overlap"),
        "    # Unknown categories similar to an ID class, by dataset and ID class. Then use distances near and far.",
        "    near:",
        *_listed(sources[1:], "near"),
        "    # Unknown categories. A name that resembles an ID class stays in a comment: move it to where it belongs.",
        "    far:",
    ]
    for source in sources[1:]:
        lines.append(f"      {source.name}: {_flow([one.category for one in source.of('unknown')])}")
        lines += [f"      # {one.category}: is it {one.id_class}? {one.reason}" for one in source.of("resembles")]
    if unlearned := [one.category for one in sources[0].proposals if one.relation != "same"]:
        lines += ["", f"# The detector has no class for these categories of {sources[0].name}: {', '.join(unlearned)}"]
    return "\n".join(lines) + "\n"


def _listed(sources: Sequence[Source], relation: Relation) -> Iterator[str]:
    """Lines of a list by dataset and ID class: empty, with the proposals in comments, the most similar class first."""
    for source in sources:
        yield f"      {source.name}: {{}}"
        if proposals := source.of(relation):
            by_class = dict.fromkeys(one.id_class for one in proposals)
            listed = {name: [one.category for one in proposals if one.id_class == name] for name in by_class}
            yield f"      # proposed {source.name}: {_flow(listed)}"
            yield from (f"      #   {one.category}: {one.id_class}, {one.reason}" for one in proposals)


def _summary(sources: Sequence[Source], entry: Mapping[str, Any], id_classes: Sequence[str]) -> list[str]:
    lines = [
        f"{source.name}: format {source.dataset.entry['format']}, subsets {', '.join(source.dataset.subsets)}, "
        f"{len(source.dataset.categories)} categories"
        for source in sources
    ]
    lines += [
        f"{source.name}: {subset} has the images of {first}, and is left out"
        for source in sources
        for subset, first in source.dataset.repeats.items()
    ]
    lines.append(f"detector: adapter {entry['adapter']}, {len(id_classes)} classes")
    for source in sources[1:]:
        named = {
            "known": [f"{one.category} → {one.id_class}" for one in source.of("same")],
            "unknown": [one.category for one in source.proposals if one.relation != "same"],
        }
        lines.append(f"{source.name}: " + "; ".join(f"{key} {', '.join(one) or 'none'}" for key, one in named.items()))
        for relation, question in {"resembles": "look at", "overlap": "may overlap:", "near": "may be near:"}.items():
            if found := source.of(relation):
                listed = ", ".join(f"{one.category} ({one.id_class}?)" for one in found)
                lines.append(f"{source.name}: {question} {listed}")
    return lines


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()
