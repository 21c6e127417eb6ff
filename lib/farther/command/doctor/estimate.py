"""`farther doctor --estimate`: what a whole run costs, from timings of the library's own calls on a small sample.

Each stage is timed on the sample and multiplied by the number of images or regions. Fitting and
scoring do not grow evenly for every method: they are timed on half of the sample's regions and on
all, and the power of growth between the two is extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.command.doctor.images import are_there, split_images, subset_images
from farther.command.doctor.measured import Measured, measure_detector, measure_pass
from farther.command.output import duration, hanging, paragraph, size
from farther.command.project import Project
from farther.errors import FartherError, ParameterError, choose

if TYPE_CHECKING:
    from farther.scoring.entries import MethodEntry
    from farther.tables import Regions

PICTURES = {".jpg", ".jpeg", ".png"}

#: Image files of a dataset that are listed for each one in the sample, at most.
LISTED = 50

#: Regions that methods are timed on; the sample's are repeated, slightly changed, where it has
#: fewer.
REGIONS = 2000

#: The largest power of growth: each region with each other.
QUADRATIC = 2.0


@dataclass(frozen=True)
class StageCost:
    """What a stage (as DVC names it) costs on this machine; None where not measured.

    `how` says what was measured and what it was multiplied by, or why it was not measured.
    """

    stage: str
    seconds: float | None
    bytes: float | None
    how: str


def estimate(project: Project, sample: int, runs: Sequence[str] | None = None) -> list[StageCost]:
    """The cost of each stage that is worth an estimate, of some runs or (None) of all.

    About `sample` images are measured, in equal shares of the datasets.
    """
    if sample < 2:
        raise ParameterError(f"--sample: expected at least 2 images, found {sample}")
    detectors = project.section("detectors")
    chosen = [choose("run", run, detectors) for run in runs or detectors]
    costs = [_ingest(project, name, sample) for name in project.section("datasets")]
    for run in chosen:
        costs += _of_run(project, run, sample)
    return [
        *costs,
        StageCost(
            "curate, embed, stratify, threshold, report",
            None,
            None,
            "not measured: usually minutes",
        ),
    ]


def report(costs: Sequence[StageCost]) -> str:
    """The costs and their sums, as text."""
    lines = []
    for cost in costs:
        shown = [] if cost.seconds is None else [duration(cost.seconds)]
        shown += [size(cost.bytes)] if cost.bytes else []
        lines += [f"{cost.stage}: {', '.join(shown) or '?'}", hanging(cost.how, 4, 4)]
    total = totals(costs)
    about = f"About {duration(total['seconds'])} in all on this machine, and {size(total['bytes'])}, one stage after"
    warning = "Estimates from a small sample may be off by a third or more."
    return "\n".join([*lines, "", paragraph(f"{about} another."), warning])


def totals(costs: Sequence[StageCost]) -> dict[str, float]:
    """Seconds and bytes of all stages together."""
    return {key: sum(getattr(cost, key) or 0 for cost in costs) for key in ("seconds", "bytes")}


def _ingest(project: Project, name: str, sample: int) -> StageCost:
    """Reading and digesting each image; parsing annotations is not measured."""

    from farther.curation import subsets_used
    from farther.evaluation.cost import timed
    from farther.images.read import open_image
    from farther.tables.files import digest

    stage = f"ingest@{name}"
    root = project.section("datasets")[name].get("root")
    files = _sample(project.folder / str(root), sample)

    def read(file: Path) -> tuple[Any, str]:
        with open_image(file) as image:
            return image.size, digest(file)

    if not files:
        return StageCost(stage, None, None, f"no images in {root}: not measured")
    each = timed(lambda: [read(file) for file in files])[0] / len(files)
    counts = [
        subset_images(project, name, one)
        for one in subsets_used(project.section("benchmarks")).get(name, ())
    ]
    if None in counts or not counts:
        return StageCost(
            stage,
            None,
            None,
            f"{1000 * each:.1f} ms per image, but the number of images is unknown",
        )
    count = sum(one or 0 for one in counts)
    how = f"{1000 * each:.1f} ms per image ({len(files)} measured) × {count:,} images, plus reading the annotations"
    return StageCost(stage, each * count, None, how)


def _sample(root: Path, count: int) -> list[Path]:
    """Some image files of a folder, spread over those that are found first."""
    from farther.datasets.presence import EXTRACTED
    from farther.tables.folders import files_below

    found = (file for file in files_below(root) if file.suffix.lower() in PICTURES)
    # The root of a dataset whose files hold its images is the folder of the extracted ones.
    files = sorted(
        islice(
            (file for file in found if EXTRACTED not in file.relative_to(root).parts),
            count * LISTED,
        )
    )
    return files[:: max(1, len(files) // count)][:count]


def _sample_of_benchmark(project: Project, benchmark: str, count: int) -> list[Path]:
    """Image files of the benchmark's datasets, in equal shares."""
    from farther.datasets import image_roots

    checked = project.benchmark(benchmark)
    known = (dataset for dataset, _ in checked.id_sources.values())
    names = dict.fromkeys([*known, *(split.dataset for split in checked.splits.values())])
    datasets = {name: project.section("datasets")[name] for name in names}
    roots = image_roots(datasets, project.artifacts / "tables", project.folder)
    share = math.ceil(count / len(roots))
    return [file for root in roots.values() for file in _sample(root, share)]


def _of_run(project: Project, run: str, sample: int) -> Iterator[StageCost]:
    """The stages of one run: infer, with its passes; fit and score, of each method; evaluate."""
    from farther.detectors import of_entry
    from farther.detectors.imported import Imported
    from farther.detectors.passes import read_passes
    from farther.scoring.entries import read_entry

    entry = project.section("detectors")[run]
    detector = of_entry(entry)
    if isinstance(detector, Imported):
        yield StageCost(f"infer@{run}", None, None, "imports detections: nothing to measure")
        return
    benchmark = str(entry.get("benchmark"))
    counts = split_images(project, benchmark)
    files = _sample_of_benchmark(project, benchmark, sample)
    if not files:
        yield StageCost(f"infer@{run}", None, None, "none of its images is available: not measured")
        return
    known = [count for count in counts.values() if count is not None]
    images = sum(known)
    unknown = (
        ""
        if len(known) == len(counts)
        else f"; {len(counts) - len(known)} splits of unknown size left out"
    )
    done = "already done; from scratch: " if are_there(project, run, benchmark) else ""

    def network(stage: str, measured: Measured, skipped: Sequence[str] = ()) -> StageCost:
        images = sum(count or 0 for split, count in counts.items() if split not in skipped)
        stored = (
            f"; bytes per region, uncompressed: {measured.columns()}"
            if len(measured.regions)
            else ""
        )
        how = f"{done}{measured} × {images:,} images{unknown}{stored}"
        return StageCost(stage, measured.seconds * images, measured.bytes * images, how)

    batch_size = int(project.section("inference").get("batch_size", 16))
    measured = measure_detector(detector, files, batch_size)
    yield network(f"infer@{run}", measured)
    sampled: dict[str | None, Regions] = {None: measured.regions}
    for name, again in read_passes(run, entry.get("passes"), project.encoder).items():
        stage = f"infer@{run}: pass {name}"
        try:
            seen = measure_pass(again, detector, files, batch_size)
            yield network(stage, seen, again.skip)
            sampled[name] = seen.regions
        except FartherError as error:
            yield StageCost(stage, None, None, f"not measured: {error}")
    regions = measured.regions
    per_image = len(measured.regions) / len(files)
    fit = project.section("fit")
    train = per_image * (counts.get(str(fit.get("split", "train"))) or 0)
    others = per_image * images - train
    for name, params in project.section("methods").items():
        stage = f"fit, score@{run}: {name}"
        fitted = min(train, fit.get("max_regions") or train)
        try:
            method = read_entry(name, params or {})
            if method.pass_name in sampled:
                yield _of_method(stage, method, sampled[method.pass_name], fitted, others)
            else:
                yield StageCost(
                    stage, None, None, f"not measured: the pass {method.pass_name!r} was not"
                )
        except FartherError as error:
            yield StageCost(stage, None, None, f"not measured: {error}")
    if len(regions):
        yield _evaluation(
            project,
            run,
            regions,
            {name: per_image * (count or 0) for name, count in counts.items()},
        )


def _of_method(
    stage: str, entry: MethodEntry, sampled: Regions, train: float, others: float
) -> StageCost:
    """Fitting on `train` regions and scoring `others`."""
    from farther.evaluation.cost import timed

    if not len(sampled):
        return StageCost(stage, None, None, "the sample has no regions: not measured")
    if entry.search or entry.oracle:
        return StageCost(stage, None, None, "its parameters are searched for: not measured")
    regions = _many(sampled)
    method = entry.create()

    def measured(count: int) -> tuple[float, float, int]:
        fit, _ = timed(lambda: method.fit(regions[:count]), tries=2)
        state = sum(
            getattr(value, "nbytes", 0)
            for name, value in vars(method).items()
            if name.endswith("_")
        )
        return fit, timed(lambda: method.score(regions), tries=2)[0], state

    (half_fit, half_score, half_state) = measured(REGIONS // 2)
    (fit, score, state) = measured(REGIONS)
    # A fixed part hides the growth of fitting in a sample; scoring may not depend on how many
    # regions were fitted.
    seconds = _grown(half_fit, fit, train / REGIONS, slowest=1.0)
    seconds += _grown(half_score, score, train / REGIONS, slowest=0.0) * others / REGIONS
    held = max(0.0, state + (state - half_state) * (train - REGIONS) / (REGIONS - REGIONS // 2))
    how = f"{REGIONS:,} regions fitted in {fit:.3f} s and scored in {score:.3f} s; there will be about "
    how += f"{train:,.0f} and {others:,.0f}; {size(held)} are in memory, and on disk, once it is fitted"
    return StageCost(stage, seconds, 24.0 * others + held, how)


def _grown(half: float, whole: float, factor: float, *, slowest: float) -> float:
    """Seconds at `factor` times the sample, by the power of growth (at least `slowest`) from half of it to all of it.

    >>> _grown(1.0, 2.0, 4, slowest=1.0), _grown(1.0, 4.0, 4, slowest=1.0)
    (8.0, 64.0)
    >>> _grown(1.0, 1.0, 4, slowest=1.0), _grown(1.0, 1.0, 4, slowest=0.0)
    (4.0, 1.0)
    """
    power = math.log2(whole / half) if half > 0 else 1.0
    return whole * factor ** min(max(power, slowest), QUADRATIC)


def _many(regions: Regions) -> Regions:
    """`REGIONS` regions: the sample's, repeated with a little noise."""
    import numpy as np

    many = regions[np.arange(REGIONS) % len(regions)]
    changed: dict[str, Any] = {"region_id": np.arange(REGIONS)}
    if regions.header.whole_images:  # one region per image
        changed["image_id"] = np.array([f"{number}" for number in range(REGIONS)], dtype=object)
    random = np.random.default_rng(0)
    for name in many.frame.columns:
        values = many.array(name)
        if (
            values is not None
            and values.ndim == 2
            and name not in ("box", "box_variance", "mean_probabilities")
        ):
            noise = random.standard_normal(values.shape) * (0.01 * float(np.std(values)) + 1e-6)
            changed[name] = (values + noise).astype(values.dtype)
    return many.with_columns(**changed)


def _evaluation(
    project: Project, run: str, sampled: Regions, counts: Mapping[str, float]
) -> StageCost:
    """Matching the regions of each OOD split and drawing replicates, for each method.

    The rest takes less.
    """
    from farther.evaluation.cost import timed
    from farther.evaluation.settings import EvaluationSettings
    from farther.registry import build

    settings = build(EvaluationSettings, "evaluate", dict(project.section("evaluate")))
    splits = list(project.benchmark(str(project.section("detectors")[run]["benchmark"])).splits)
    methods = len(project.section("methods"))
    rows = methods * sum(
        counts.get(settings.id_split, 0.0) + counts.get(split, 0.0) for split in splits
    )
    seconds, _ = timed(_matching(_many(sampled), settings))
    how = (
        f"{2 * REGIONS:,} regions matched and drawn {settings.replicates} times in {seconds:.2f} s × {rows:,.0f}: "
        f"those of ID and OOD split, for {len(splits)} splits and {methods} methods; an upper bound, since t* leaves "
        "fewer"
    )
    return StageCost(f"evaluate@{run}: metrics", seconds * rows / (2 * REGIONS), None, how)


def _matching(regions: Regions, settings: Any) -> Callable[[], None]:
    """Evaluates one method on a split that is like its ID split: every third region lies on an object."""
    import numpy as np

    from farther.metrics import ood, open_set
    from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
    from farther.metrics.statistics import bootstrap
    from farther.tables import Objects

    some = regions[::3]
    names = np.full(len(some), "unknown", dtype=object)
    objects = Objects(
        image_id=some.image_id, object_id=np.arange(len(some)), box=some.box, category=names
    )
    scores = regions.score.astype(np.float64)

    def call() -> None:
        split = OpenSetSplit.of(objects, regions, MatchingRules(settings.iou, settings.protocol))
        outcome = split.match(scores < np.median(scores))
        open_set.metrics(outcome, -scores)
        if settings.replicates:
            draws = bootstrap.ImageDraws(set(regions.image_id), settings.replicates, settings.seed)
            rows = draws.rows(regions.image_id)
            ood.evaluate(scores, scores, rows, rows)
            open_set.metrics(outcome, -scores, draws.of(split.images))

    return call
