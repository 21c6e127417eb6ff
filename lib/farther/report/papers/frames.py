"""The long tables that papers' tables select from.

They have the columns of `farther.evaluation.long_table` and `LABELS`. `results` has the values of
runs; the others have values of the data, with "" as run:

    images       images of each OOD split
    categories   OOD images by the rule that assigned them, and those that the rules removed
    similarity   mean similarity of each split to ID images
    objects      objects of each class in the ID validation and the ID test split
    attributes   images of the ID test split by their attributes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from farther import curation
from farther.curation import Benchmark, Fates, benchmark_kind
from farther.evaluation.files import RunFiles
from farther.evaluation.long_table import SCHEMA, read_long_table
from farther.evaluation.parts import part_text
from farther.report.charts.vega import read_csv
from farther.report.results import Run, title_of, title_of_split
from farther.report.settings import Counterpart
from farther.tables import ImageAttributes, Images, Objects
from farther.tables.files import inside, is_file
from farther.tables.stored import ATTRIBUTES

#: Labels of a row, beside its columns `run`, `split`, `method` and `metric`:
#: title of the run, and the same with its benchmark's; title of the benchmark; images of the run
#: without and with those of splits that show known objects; title of the network among others of
#: the benchmark, and of the benchmark among others of its kind; protocol of the benchmark's rules;
#: role of the split, and the dataset of its images.
LABELS: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "split": pl.String,
    "method": pl.String,
    "metric": pl.String,
    "detector": pl.String,
    "algorithm": pl.String,
    "dataset": pl.String,
    "images": pl.String,
    "all_images": pl.String,
    "network": pl.String,
    "benchmark_group": pl.String,
    "protocol": pl.String,
    "role": pl.String,
    "source": pl.String,
}

#: Columns by which rows are selected and ordered.
_FURTHER: dict[str, type[pl.DataType]] = {
    "method_title": pl.String,
    "kind": pl.String,
    "is_classifier": pl.Boolean,
    "run_position": pl.Int64,
    "split_position": pl.Int64,
}

FRAME: dict[str, type[pl.DataType]] = {**SCHEMA, **LABELS, **_FURTHER}

#: Metrics of the data → what they are.
DATA_METRICS = {
    "images": "images",
    "removed_images": "images that the rules removed",
    "similarity": "mean over images of the largest cosine of an image's embedding to an ID image's",
    "objects": "objects, without crowds",
    "share": "share of the images",
}

#: Prefixes of the titles of benchmarks, by their kind.
KIND_PREFIXES = {"ad": "AD: ", "osr": "OSR: ", "ood": ""}

#: The parts of a rule by which an image was assigned to a split.
_RULE = r"^(?<kind>[^:]+): (?<category>.+?) → (?<known>.+)$"


@dataclass(frozen=True)
class Sources:
    """The data that papers' tables are computed from.

    Args:
        runs: The evaluated runs.
        params: All of params.yaml.
        root: The project's folder.
        published: Run, or name of `seeds` → the published detector that it is compared with.
        seeds: Name → runs that are shown as one, see `farther.report.settings.ReportSettings`.
    """

    runs: Sequence[Run]
    params: Mapping[str, Any]
    root: Path
    published: Mapping[str, Counterpart] = field(default_factory=dict)
    seeds: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def artifacts(self) -> Path:
        """The artifacts folder."""
        return self.root / "artifacts"

    @property
    def benchmarks(self) -> dict[str, str]:
        """Name of each benchmark → its title."""
        titles = {}
        for name, entry in self.params["benchmarks"].items():
            titles[name] = str(entry.get("title") or name)
        return titles

    @property
    def first_runs(self) -> list[Run]:
        """The first run of each benchmark whose details are on this machine."""
        run_by_benchmark: dict[str, Run] = {}
        for run in self.runs:
            if run.description is not None:
                run_by_benchmark.setdefault(run.benchmark, run)
        return list(run_by_benchmark.values())


def results(sources: Sources) -> pl.DataFrame:
    """Every value of every run, those of classifiers first."""
    runs = sorted(sources.runs, key=_is_detector)
    frames = [pl.DataFrame(schema=FRAME)]
    for position, run in enumerate(runs):
        file = RunFiles(run.name, run.benchmark, sources.artifacts).long_table
        if is_file(file):
            frames.append(results_of_run(run, read_long_table(file), sources, position))
    return pl.concat(frames)


def results_of_run(
    run: Run, table: pl.DataFrame, sources: Sources, position: int = 0
) -> pl.DataFrame:
    """The values of one run, with labels.

    Args:
        run: The run.
        table: Its long table.
        sources: What the seeds and the benchmark of the run are.
        position: Its position among the runs.
    """
    entry = sources.params["benchmarks"].get(run.benchmark)
    kind = benchmark_kind(entry)
    seed_group = ""
    for name, names_of_runs in sources.seeds.items():
        if run.name in names_of_runs:
            seed_group = name
    title_by_method = {method: run.label(method) for method in run.methods}

    labelled = table.with_columns(
        detector=pl.lit(run.title),
        algorithm=pl.lit(run.full_title),
        dataset=pl.lit(run.known_title),
        images=pl.lit(run.image_counts()),
        all_images=pl.lit(run.image_counts(with_known=True)),
        network=pl.lit(_network_title(run, kind, seed_group)),
        benchmark_group=pl.lit(_benchmark_title(run, kind, seed_group)),
        protocol=pl.lit(_protocol(entry)),
        method_title=pl.col("method").replace_strict(
            title_by_method, default=None, return_dtype=pl.String
        ),
        kind=pl.lit(kind),
        is_classifier=pl.lit(run.whole_images),
        run_position=pl.lit(position, pl.Int64),
    )
    with_splits = labelled.join(_splits(run, table), on="split", how="left", maintain_order="left")
    return with_splits.select(list(FRAME))


def _is_detector(run: Run) -> bool:
    return not run.whole_images


def _benchmark_title(run: Run, kind: str, seed_group: str) -> str:
    """Title of a run's benchmark: categories share one, and so do the divisions of a dataset."""
    title = run.benchmark_title
    if kind == "ad":
        title = "all categories"
    elif kind == "osr" and seed_group:
        title = seed_group
    return f"{KIND_PREFIXES[kind]}{title}"


def _protocol(entry: Mapping[str, Any] | None) -> str:
    """Protocol of a benchmark's rules, from its entry in params.yaml."""
    protocol = (entry or {}).get("protocol")
    return str(protocol or Benchmark.protocol)


def _network_title(run: Run, kind: str, seed_group: str) -> str:
    """Title of a run's network, "" where titles do not tell networks apart."""
    if kind == "osr" and seed_group:
        return ""
    if kind == "ood" and seed_group:
        return seed_group.removeprefix(f"{run.benchmark}-")
    if run.title == run.name:  # named as its benchmark is: the title says nothing of the network
        return ""
    return run.title


def _splits(run: Run, table: pl.DataFrame) -> pl.DataFrame:
    """Role, dataset and position of each split of a run's long table."""
    ood_names = [split.name for split in run.splits]
    dataset_by_name = {split.name: split.dataset for split in run.splits}
    role_by_name = {"": "all"}
    if run.description is not None:
        role_by_name[run.description.settings.calibration_split] = "validation"
        role_by_name[run.description.settings.id_split] = "id"

    rows = []
    for name in table["split"].unique(maintain_order=True):
        role = role_by_name.get(name, "shifted")
        position = -1
        if name in ood_names:
            role = "ood"
            position = ood_names.index(name)
        row = {"split": name, "role": role, "source": dataset_by_name.get(name, "")}
        rows.append({**row, "split_position": position})
    schema = {"split": pl.String, "role": pl.String, "source": pl.String}
    return pl.DataFrame(rows, schema={**schema, "split_position": pl.Int64})


def _frame(rows: Iterator[Mapping[str, Any]]) -> pl.DataFrame:
    """Values of the data; columns that a row lacks are empty."""
    empty: dict[str, Any] = {}
    for name, dtype in FRAME.items():
        empty[name] = "" if dtype == pl.String else None
    empty["unit"] = "count"
    empty["split_position"] = 0
    completed = []
    for position, row in enumerate(rows):
        completed.append({**empty, "run_position": position, **row})
    return pl.DataFrame(completed, schema=FRAME)


def images(sources: Sources) -> pl.DataFrame:
    """Images of each OOD split."""
    return _frame(_image_rows(sources))


def _image_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    for name, title in sources.benchmarks.items():
        for split in sources.params["benchmarks"][name]["splits"]:
            file = sources.artifacts / "splits" / name / split / "images.parquet"
            if file.exists():
                count = len(Images.read(file))
                yield {"dataset": title, "split": split, "metric": "images", "value": count}


def categories(sources: Sources) -> pl.DataFrame:
    """OOD images by the rule that assigned them: those removed, and those of each category."""
    return _frame(_category_rows(sources))


def _category_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    for name, title in sources.benchmarks.items():
        file = sources.artifacts / "splits" / name / "fates.parquet"
        if not file.exists():
            continue
        rule = pl.col("rule").str.extract_groups(_RULE)
        assigned = Fates.read(file).frame.select("dataset", rule.alias("parts")).unnest("parts")

        is_removed = pl.col("kind").is_in(["ID class", "overlap"])
        removed = assigned.filter(is_removed).group_by("known").agg(images=pl.len())
        removed = removed.sort("images", "known", descending=[True, False])
        for known, count in removed.iter_rows():
            part = part_text({"class": known})
            row = {"dataset": title, "metric": "removed_images", "part": part}
            yield {**row, "value": count}

        keys = ["kind", "known", "dataset", "category"]
        counts = assigned.drop_nulls("kind").group_by(keys).agg(images=pl.len()).sort(keys)
        for kind, known, dataset, category, count in counts.iter_rows():
            part = part_text(
                {"rule": kind, "class": known, "source": dataset, "category": category}
            )
            yield {"dataset": title, "metric": "images", "part": part, "value": count}


def similarity(sources: Sources) -> pl.DataFrame:
    """Mean similarity of each split to ID images."""
    return _frame(_similarity_rows(sources))


def _similarity_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    columns = {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64}
    mean = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
    for name, title in sources.benchmarks.items():
        histogram = read_csv(sources.artifacts / "plots" / "similarity" / f"{name}.csv", columns)
        means = histogram.group_by("split", maintain_order=True).agg(mean)
        for split, value in means.iter_rows():
            row = {"dataset": title, "split": split, "metric": "similarity"}
            yield {**row, "value": value, "unit": "fraction"}


def objects(sources: Sources) -> pl.DataFrame:
    """Objects of each ID class in both ID splits, the most frequent class first; no crowds."""
    return _frame(_object_rows(sources))


def _object_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    for run in sources.first_runs:
        counts = _object_counts(run, sources.artifacts)
        if counts is None:
            continue
        for class_name, count, role in counts.iter_rows():
            row = {"dataset": run.known_title, "role": role, "metric": "objects"}
            yield {**row, "part": part_text({"class": class_name}), "value": count}


def _object_counts(run: Run, artifacts: Path) -> pl.DataFrame | None:
    """Columns class, objects and role; None where tables are not on this machine."""
    assert run.description is not None
    settings = run.description.settings
    classes = pl.DataFrame({"category": list(run.results.table.by_part("self_awareness", "class"))})
    counts_by_role = {}
    for role, split in (("validation", settings.calibration_split), ("id", settings.id_split)):
        file = RunFiles(run.name, run.benchmark, artifacts).objects(split)
        if not is_file(file):
            return None
        counted = Objects.read(file).frame.filter(~pl.col("is_crowd")).group_by("category").len()
        counts = classes.join(counted, on="category", how="left", maintain_order="left")
        counts_by_role[role] = counts["len"].fill_null(0)

    table = classes.with_columns(**counts_by_role).sort("id", descending=True, maintain_order=True)
    return table.unpivot(
        ["validation", "id"], index="category", variable_name="role", value_name="objects"
    ).select("category", "objects", "role")


def attributes(sources: Sources) -> pl.DataFrame:
    """ID test images by the values of their attributes, where their dataset has attributes."""
    return _frame(_attribute_rows(sources))


def _attribute_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    for run in sources.first_runs:
        assert run.description is not None
        id_split = run.description.settings.id_split
        entry = sources.params["benchmarks"][run.benchmark]
        dataset, subset = curation.benchmark(run.benchmark, entry).id_sources[id_split]
        folder = inside(sources.artifacts / "tables", f"{dataset}/{subset}")
        file = RunFiles(run.name, run.benchmark, sources.artifacts).images(id_split)
        if not is_file(folder / ATTRIBUTES) or not is_file(file):
            continue

        test_images = Images.read(file).image_id.tolist()
        counts = (
            ImageAttributes.read(folder / ATTRIBUTES)
            .frame.filter(pl.col("image_id").is_in(test_images))
            .group_by("attribute", "value")
            .agg(images=pl.len())
            .sort("attribute", "images", "value", descending=[False, True, False])
        )
        for attribute, value, count in counts.iter_rows():
            part = part_text({"attribute": attribute, "is": value})
            row = {"dataset": run.known_title, "part": part}
            yield {**row, "metric": "images", "value": count}
            share = count / len(test_images)
            yield {**row, "metric": "share", "value": share, "unit": "fraction"}


#: Name of each long table → what makes it.
FRAMES = {
    "results": results,
    "images": images,
    "categories": categories,
    "similarity": similarity,
    "objects": objects,
    "attributes": attributes,
}


def label_title(label: str, row: Mapping[str, Any]) -> str:
    """The title of a row's label, where the layout of a table does not name it."""
    value = row.get(label)
    if label == "split":
        return title_of_split(str(value))
    if label == "method":
        return str(row.get("method_title") or title_of(str(value)))
    return "" if value is None else str(value)
