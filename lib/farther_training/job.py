"""A training job, from tables to a checkpoint with its card, the same for every trainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from farther.curation import LabelledImages, Rules
from farther.curation.splits import without_unknown
from farther.errors import DataError, ParameterError
from farther.images.device import torch_device
from farther.naming.registry import build
from farther.tables import Images, Objects
from farther.tables.documents import write_json
from farther.tables.files import inside
from farther.tables.schema import read_typed
from farther.tables.stored import DatasetCategories
from farther.tables.writing import delete_work, write_aside
from farther.text.escaping import markdown
from farther_training import trainers
from farther_training.samples import Samples
from farther_training.trainers import Job, Task, Trained

SUBSETS = ("train", "val", "test")


@dataclass(frozen=True)
class CardMetric:
    """A metric of an evaluation in a checkpoint's card.

    Args:
        name: Its name in the card.
        title: Its title in the card's text.
    """

    name: str
    title: str


#: Metrics of an evaluation in the card, by their names in the evaluation. The first one that an
#: evaluation has is also reported per class.
METRICS = {
    "ap50": CardMetric("map50", "mAP50"),
    "ap": CardMetric("map", "mAP"),
    "accuracy": CardMetric("accuracy", "accuracy"),
}

TEMPLATE = """\
# {name}

{kind}, {millions:.1f} million parameters.
{scaling}
{metrics}

Trained on {images} images of `{dataset}` with {objects} objects (data {data_digest}){left_out}.
Classes and their {first} on `{test}`: {classes}.

{sections}

The same as JSON: [{name}.json]({name}.json).
"""


def make_job(name: str, entry: Mapping[str, Any]) -> Job:
    """The job of an entry of `train:` in `training/params.yaml`.

    An entry has the key `trainer` and the parameters of that trainer's job.
    """
    params = dict(entry)
    if "trainer" not in params:
        known = ", ".join(trainers.names())
        raise ParameterError(
            f"training job {name!r}: parameter 'trainer' is missing. Known: {known}"
        )
    try:
        kind = trainers.get(params.pop("trainer"))
    except ParameterError as error:
        raise ParameterError(f"training job {name!r}: parameter 'trainer': {error}") from None
    return build(kind, f"training job {name!r}", params)


def run_job(name: str, job: Job, root: Path, artifacts: Path) -> dict[str, Any]:
    """Trains, or resumes a killed run, and writes the checkpoint, its card and the log.

    Returns the card.

    Raises:
        DataError: a table, an image or the initial weights are absent or damaged, or there are no
            objects to learn.
        ParameterError: the network or the device cannot be used, or a class is unknown; names the
            job.
        TrainingError: the loss is not finite.
    """
    try:
        samples = _samples(job, root, artifacts)
        task = Task(
            training=samples["train"],
            validation=samples["val"],
            device=torch_device(job.device),
            work=inside(artifacts / ".work" / "train", name),
            log_file=inside(artifacts / "train", name) / "log.csv",
            notes={"name": name, "dataset": job.dataset, "data_digest": samples["train"].digest()},
        )
        trained = job.learn(task)
    except ParameterError as error:
        raise ParameterError(f"training job {name!r}: {error}") from None
    card = _card(name, job, samples, trained)
    write_json(job.weights.with_suffix(".json"), card)
    with write_aside(job.weights.with_suffix(".md")) as aside:
        aside.write_text(_markdown(card, trained), encoding="utf-8")
    delete_work(task.work)
    return card


def _card(name: str, job: Job, samples: Mapping[str, Samples], trained: Trained) -> dict[str, Any]:
    training = samples["train"]
    metrics = {}
    for subset in ("val", "test"):
        metrics[getattr(job, subset)] = _metrics(trained.evaluate(samples[subset]))
    return {
        "name": name,
        "trainer": job.name,
        **trained.facts,
        "parameters": trained.parameters,
        "dataset": job.dataset,
        "images": len(training),
        "objects": training.learned,
        "left_out": training.left_out,
        "data_digest": training.digest(),
        "initial_weights": trained.origin,
        "recipe": asdict(job.recipe, dict_factory=_with_paths_as_text),
        "torch": torch.__version__,
        **{package: version(package) for package in trained.packages},
        "metrics": metrics,
    }


def _with_paths_as_text(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Names and values as a dict that JSON can hold: of a recipe that names folders."""
    plain = {}
    for name, value in values:
        plain[name] = str(value) if isinstance(value, Path) else value
    return plain


def _metrics(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of an evaluation under their names in the card, the first one also per class."""
    names = [name for name in METRICS if name in evaluation]
    metrics = {METRICS[name].name: evaluation[name] for name in names}
    first = names[0]
    metrics[f"{METRICS[first].name}_per_class"] = {
        category: values[first] for category, values in evaluation["per_class"].items()
    }
    return metrics


def _samples(job: Job, root: Path, artifacts: Path) -> dict[str, Samples]:
    """Samples of each subset by its purpose."""
    tables = inside(artifacts / "tables", job.dataset)
    rules = _divided_rules(job)
    classes = _classes(job, rules, tables / "categories.json")
    samples = {}
    for subset in SUBSETS:
        folder = inside(tables, getattr(job, subset))
        images = Images.read(folder / "images.parquet")
        objects = Objects.read(folder / "objects.parquet")
        left_out = Counter[str]()
        if rules is not None:
            labelled = LabelledImages(images, objects, folder / "objects.parquet")
            known = without_unknown(labelled, rules)
            left_out = Counter(objects.category) - Counter(known.objects.category)
            images = known.images
            objects = known.objects
        try:
            subset_samples = Samples(images, objects, root, classes)
        except DataError as error:
            raise DataError(error.problem, file=folder, row=error.row, field=error.field) from None
        left_out += Counter(subset_samples.left_out)
        subset_samples.left_out = dict(sorted(left_out.items()))
        samples[subset] = subset_samples
    return samples


def _divided_rules(job: Job) -> Rules | None:
    """The rules of the benchmark by which a job divides classes; None without a division."""
    if job.division is None:
        return None
    if job.classes is not None:
        raise ParameterError(
            "parameter 'division': it gives the classes to learn; leave 'classes' out"
        )
    return Rules(job.division.rules, division=job.division, dataset=job.dataset)


def _classes(job: Job, rules: Rules | None, path: Path) -> tuple[str, ...]:
    """Classes of a job: of its parameters, known classes of its division, or of the dataset."""
    names = read_typed(DatasetCategories, path).categories
    if rules is not None:
        absent = [name for name in rules.id_classes if name not in names]
        if absent:
            raise ParameterError(
                f"parameter 'division': {', '.join(map(repr, absent))} of {rules.path} is not a "
                f"category of {job.dataset!r}; {path} lists them"
            )
        return rules.id_classes
    if job.classes is None:
        return tuple(names)
    absent = [name for name in job.classes if name not in names]
    if absent:
        raise ParameterError(
            f"parameter 'classes': {', '.join(map(repr, absent))} is not a category of "
            f"{job.dataset!r}; {path} lists them"
        )
    return job.classes


def _markdown(card: Mapping[str, Any], trained: Trained) -> str:
    """The text of a card."""
    test = list(card["metrics"])[-1]
    test_metrics = card["metrics"][test]
    reported = [metric for metric in METRICS.values() if metric.name in test_metrics]
    first = reported[0]

    per_class = test_metrics[f"{first.name}_per_class"]
    classes = []
    for name in card["classes"]:
        classes.append(f"{markdown(name)} {_percent(per_class.get(name))}")
    left_out = ""
    if card["left_out"]:
        counts = [f"{count} {name}" for name, count in card["left_out"].items()]
        left_out = f"; left out: {', '.join(counts)}"
    scaling = ""
    if trained.scaling:
        scaling = f"{trained.scaling}\n"
    sections = []
    for title, key in {"Recipe": "recipe", **trained.sections}.items():
        sections.append("\n".join([f"## {title}\n", *_lines(card[key])]))

    values = {
        **card,
        "kind": trained.kind,
        "scaling": scaling,
        "millions": card["parameters"] / 1e6,
        "metrics": _metric_table(card["metrics"], reported),
        "first": first.title,
        "left_out": left_out,
        "test": test,
        "classes": ", ".join(classes),
        "sections": "\n\n".join(sections),
    }
    return TEMPLATE.format_map(values)


def _metric_table(
    metrics_by_subset: Mapping[str, Mapping[str, Any]], reported: Sequence[CardMetric]
) -> str:
    """Table with one row per subset and one column per metric."""
    titles = [metric.title for metric in reported]
    rows = [["", *titles], ["---"] * (1 + len(titles))]
    for subset, metrics in metrics_by_subset.items():
        values = [_percent(metrics[metric.name]) for metric in reported]
        rows.append([subset, *values])
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join(lines)


def _lines(values: Mapping[str, Any], indent: str = "") -> list[str]:
    """A list of names and values, with a nested list for each mapping."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}- {name}", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}- {name}: {value}")
    return lines


def _percent(fraction: float | None) -> str:
    """A fraction in percent; "–" for None."""
    if fraction is None:
        return "–"
    return f"{100 * fraction:.1f}%"
