"""What a whole run costs, from a sample of its own images that goes through its own detectors and methods.

Each stage's cost is measured on the sample and multiplied by how much there is. How long fitting and scoring take does
not grow evenly for every method: they are measured on half of the sample's regions and on all, and the power of growth
between the two is kept on.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.command.needs.checkpoints import make_detector
from farther.command.needs.machine import GIB, are_there, split_images, subset_images
from farther.command.project import Project
from farther.errors import FartherError, ParameterError, choose

if TYPE_CHECKING:
    from farther.evaluation.evaluate import EvaluationSettings
    from farther.tables import Regions

PICTURES = {".jpg", ".jpeg", ".png"}

#: Images of a dataset that the sample is drawn from, at most so many for each one in it.
LOOKED_AT = 50

#: Regions that methods are measured on, at most; the sample's are repeated, a little changed, where it has fewer.
REGIONS = 2000

#: The largest power of growth: each region with each other.
FASTEST = 2.0


@dataclass(frozen=True)
class Cost:
    """What a stage costs.

    Args:
        stage: As DVC calls it.
        seconds: Of this machine; None where that was not measured.
        bytes: What it writes; None where that was not measured.
        how: What was measured, and what it was multiplied by; or why nothing was.
    """

    stage: str
    seconds: float | None
    bytes: float | None
    how: str


@dataclass(frozen=True)
class _Measured:
    """A detector on the sample: per image, and the regions."""

    seconds: float
    bytes: float
    gpu: float
    regions: Regions


def estimate(project: Project, sample: int, runs: Sequence[str] | None = None) -> list[Cost]:
    """The cost of each stage that is worth an estimate.

    Args:
        project: Its datasets must be there, and the checkpoints of `runs`.
        sample: About how many images to measure, in equal shares of the datasets.
        runs: Entries of `detectors`; all where None.

    Raises:
        ParameterError: a run is unknown, or `sample` is below 2.
        DataError: a dataset or a checkpoint is absent or damaged.
    """
    if sample < 2:
        raise ParameterError(f"--sample: expected at least 2 images, found {sample}")
    detectors = project.section("detectors")
    chosen = [choose("run", run, detectors) for run in runs or detectors]
    costs = list(_ingest(project, sample))
    for run in chosen:
        costs += _of_run(project, run, detectors[run], sample)
    return [*costs, Cost("curate, embed, stratify, threshold, report", None, None, "not measured: usually minutes")]


def sums(costs: Sequence[Cost]) -> tuple[float, float]:
    """Seconds and bytes of all that was measured."""
    return sum(cost.seconds or 0 for cost in costs), sum(cost.bytes or 0 for cost in costs)


def to_json(costs: Sequence[Cost]) -> str:
    """The costs and their sums, as JSON."""
    from farther.command.output import as_json

    seconds, total = sums(costs)
    return as_json({"seconds": seconds, "bytes": total, "stages": [asdict(cost) for cost in costs]})


def report(costs: Sequence[Cost]) -> str:
    """The costs and their sums, as text."""
    from farther.command.output import duration, hanging, paragraph, size

    seconds, total = sums(costs)
    lines = []
    for cost in costs:
        shown = [] if cost.seconds is None else [duration(cost.seconds)]
        shown += [size(cost.bytes)] if cost.bytes else []
        lines += [f"{cost.stage}: {', '.join(shown) or '?'}", hanging(cost.how, 4, 4)]
    lines += [
        "",
        paragraph(f"In all about {duration(seconds)} on this machine, and {size(total)}, one stage after another."),
    ]
    return "\n".join([*lines, paragraph("Estimates from a small sample: expect them to be off by a third, or more.")])


def _ingest(project: Project, sample: int) -> Iterator[Cost]:
    """Reading the header of each image and digesting it; parsing annotations comes on top."""
    from PIL import Image

    from farther.tables.files import digest

    for name, params in project.section("datasets").items():
        files = _sample(project.folder / str(params.get("root")), sample)
        if not files:
            yield Cost(f"ingest@{name}", None, None, f"no images in {params.get('root')}: not measured")
            continue
        start = time.perf_counter()
        for file in files:
            with Image.open(file) as image:
                _ = image.size
            digest(file)
        each = (time.perf_counter() - start) / len(files)
        count = _images_of_dataset(project, name)
        if count is None:
            yield Cost(
                f"ingest@{name}", None, None, f"{1000 * each:.1f} ms an image, but how many there are is unknown"
            )
        else:
            how = f"{1000 * each:.1f} ms an image ({len(files)} measured) × {count:,} images; annotations come on top"
            yield Cost(f"ingest@{name}", each * count, None, how)


def _images_of_dataset(project: Project, name: str) -> int | None:
    """Images of the subsets of a dataset that are used."""
    from farther.curation import subsets_used

    subsets = subsets_used(project.section("benchmarks")).get(name, set())
    counts = [subset_images(project, name, subset) for subset in subsets]
    return None if None in counts or not counts else sum(count or 0 for count in counts)


def _sample(root: Path, count: int) -> list[Path]:
    """Some image files of a folder, spread over those that are found first."""
    from farther.datasets.roots import EXTRACTED

    folder = root if root.is_dir() else Path()
    found = (file for file in folder.rglob("*") if file.suffix.lower() in PICTURES) if root.is_dir() else iter(())
    files = sorted(islice((file for file in found if EXTRACTED not in file.parts), count * LOOKED_AT))
    step = max(1, len(files) // count)
    return files[::step][:count]


def _of_run(project: Project, run: str, entry: dict[str, Any], sample: int) -> Iterator[Cost]:
    """The stages of one run: infer, and fit and score with each method."""
    benchmark = str(entry.get("benchmark"))
    counts = split_images(project, benchmark)
    files = _sample_of_benchmark(project, benchmark, sample)
    if not files:
        yield Cost(f"infer@{run}", None, None, "no image of its datasets is there: not measured")
        return
    measured = _measure(project, entry, files)
    known = [count for count in counts.values() if count is not None]
    images = sum(known)
    unknown = "" if len(known) == len(counts) else f"; {len(counts) - len(known)} splits of unknown size left out"
    per_image = len(measured.regions) / len(files)
    gpu = f", {measured.gpu:.1f} GiB of GPU memory" if measured.gpu else ""
    how = (
        f"{measured.seconds:.3f} s, {per_image:.1f} regions and {measured.bytes / 1000:.1f} kB an image "
        f"({len(files)} measured{gpu}) × {images:,} images{unknown}"
    )
    if are_there(project, run, benchmark):
        how = f"done already; from the start: {how}"
    yield Cost(f"infer@{run}", measured.seconds * images, measured.bytes * images, how)
    train = counts.get(str(project.section("fit").get("split", "train"))) or 0
    yield from _methods(project, run, measured.regions, per_image * train, per_image * (images - train))
    if len(measured.regions):
        yield _evaluation(project, run, measured.regions, {name: per_image * (n or 0) for name, n in counts.items()})


def _sample_of_benchmark(project: Project, benchmark: str, count: int) -> list[Path]:
    """Image files of the benchmark's datasets, in equal shares."""
    made = project.benchmark(benchmark)
    datasets = list(dict.fromkeys([made.id, *(split.dataset for split in made.splits.values())]))
    roots = [project.folder / str(project.section("datasets")[name].get("root")) for name in datasets]
    extracted = [project.artifacts / "tables" / name / "extracted-images" for name in datasets]
    share = math.ceil(count / len(datasets))
    found = [_sample(root, share) or _sample(other, share) for root, other in zip(roots, extracted, strict=True)]
    return [file for files in found for file in files]


def _measure(project: Project, entry: dict[str, Any], files: Sequence[Path]) -> _Measured:
    """Runs a detector over image files, once to warm up and once by the clock.

    Pictures are prepared by worker processes beside the network, so the slower of the two counts.
    """
    from farther.detectors.base import as_pixels
    from farther.detectors.imported import Imported
    from farther.detectors.inference import InferenceParams
    from farther.registry import build
    from farther.tables import Regions

    params = build(InferenceParams, "inference", dict(project.section("inference")))
    detector = make_detector(entry)
    if isinstance(detector, Imported):
        raise ParameterError("detections made elsewhere are imported, not computed: name the other runs with --run")
    detector.header()
    names = [str(file) for file in files]
    start = time.perf_counter()
    prepared = [detector.prepare(as_pixels(file, name)) for file, name in zip(files, names, strict=True)]
    preparing = (time.perf_counter() - start) / len(files)
    batches = [slice(first, first + params.batch_size) for first in range(0, len(files), params.batch_size)]
    with _without_gradients():
        detector.forward(prepared[batches[0]], names[batches[0]])
        start = time.perf_counter()
        found = [detector.forward(prepared[batch], names[batch]) for batch in batches]
        computing = (time.perf_counter() - start) / len(files)
    regions = Regions.concatenate(found)
    workers = params.processes()
    seconds = max(preparing / workers, computing) if workers else preparing + computing
    return _Measured(seconds, _bytes(regions) / len(files), _gpu_peak(), regions)


def _without_gradients() -> Any:
    import torch

    return torch.inference_mode()


def _gpu_peak() -> float:
    """GPU memory that was taken at most, in GiB."""
    import torch

    return torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0


def _bytes(regions: Regions) -> int:
    with tempfile.TemporaryDirectory(prefix="farther-estimate-") as folder:
        regions.write(Path(folder) / "regions")
        return sum(file.stat().st_size for file in (Path(folder) / "regions").rglob("*.parquet"))


def _methods(project: Project, run: str, regions: Regions, train: float, others: float) -> Iterator[Cost]:
    """Fitting on `train` regions and scoring `others`, for each method."""
    most = project.section("fit").get("max_regions")
    train = min(train, most) if most else train
    for name, params in project.section("methods").items():
        if not len(regions):
            yield Cost(f"fit, score@{run}-{name}", None, None, "the sample has no regions: not measured")
            continue
        try:
            yield _of_method(run, name, dict(params or {}), _many(regions), train, others)
        except FartherError as error:
            yield Cost(f"fit, score@{run}-{name}", None, None, f"not measured: {error}")


def _of_method(run: str, name: str, params: dict[str, Any], regions: Regions, train: float, others: float) -> Cost:
    from farther.scoring.entries import read_entry

    entry = read_entry(name, params)
    if entry.search or entry.oracle:
        return Cost(f"fit, score@{run}-{name}", None, None, "its parameters are chosen among many: not measured")
    half = len(regions) // 2
    small, large = (_timed(entry, regions[:count], regions) for count in (half, len(regions)))
    fitting, scoring = (
        _grown(small[part], large[part], half, len(regions), train, slowest) for part, slowest in ((0, 1.0), (1, 0.0))
    )
    seconds = fitting + scoring * others / len(regions)
    how = f"{len(regions):,} regions fitted in {large[0]:.3f} s and scored in {large[1]:.3f} s; there will be about "
    return Cost(f"fit, score@{run}-{name}", seconds, 24.0 * others, f"{how}{train:,.0f} and {others:,.0f}")


def _evaluation(project: Project, run: str, regions: Regions, counts: Mapping[str, float]) -> Cost:
    """Judging the regions of each OOD split and drawing replicates, for each method; the rest is less.

    Args:
        counts: Regions of each split, all that are stored; those below t* are not evaluated, and are not known yet.
    """
    from farther.curation import benchmark as checked
    from farther.evaluation.evaluate import EvaluationSettings
    from farther.registry import build

    settings = build(EvaluationSettings, "evaluate", dict(project.section("evaluate")))
    name = str(project.section("detectors")[run]["benchmark"])
    splits = list(checked(name, project.section("benchmarks")[name]).splits)
    methods = len(project.section("methods"))
    rows = methods * sum(counts.get(settings.id_split, 0.0) + counts.get(split, 0.0) for split in splits)
    many = _many(regions)
    seconds = _judged(many, settings)
    how = (
        f"{2 * len(many):,} regions judged and drawn {settings.replicates} times in {seconds:.2f} s × {rows:,.0f}: "
        f"those of ID and OOD split, for {len(splits)} splits and {methods} methods; at most, as t* leaves fewer"
    )
    return Cost(f"evaluate@{run}", seconds * rows / (2 * len(many)), None, how)


def _judged(regions: Regions, settings: EvaluationSettings) -> float:
    """Seconds that one method takes on a split that is like its ID split: each third region lies on an object."""
    import numpy as np

    from farther.metrics import bootstrap, open_set
    from farther.tables import Objects

    some = regions[::3]
    names = np.full(len(some), "unknown", dtype=object)
    objects = Objects(image_id=some.image_id, object_id=np.arange(len(some)), box=some.box, category=names)
    scores = regions.score.astype(np.float64)
    draws = bootstrap.ImageDraws(set(regions.image_id), max(settings.replicates, 1), settings.seed)
    start = time.perf_counter()
    outcome = open_set.Split(objects, regions, settings.iou, settings.protocol).judge(scores < np.median(scores))
    outcome.figures(unknown_score=-scores)
    if settings.replicates:
        bootstrap.ood_figures(draws, regions.image_id, scores, draws, regions.image_id, scores)
        bootstrap.open_set_figures(draws, outcome, -scores)
    return time.perf_counter() - start


def _timed(entry: Any, train: Regions, scored: Regions) -> tuple[float, float]:
    """Seconds to fit and to score, the faster of two tries each."""
    tries = []
    for _ in range(2):
        method = entry.create()
        start = time.perf_counter()
        method.fit(train)
        middle = time.perf_counter()
        method.score(scored)
        tries.append((middle - start, time.perf_counter() - middle))
    return min(one for one, _ in tries), min(one for _, one in tries)


def _grown(small: float, large: float, half: int, whole: int, wanted: float, slowest: float) -> float:
    """Seconds at `wanted` regions, from those at `half` and at `whole`, by the power of growth between them.

    Args:
        slowest: The smallest power that is believed: 1 for fitting, whose fixed part hides the rest in a sample; 0 for
            scoring, which may not depend on how many regions were fitted.

    >>> _grown(1.0, 2.0, 500, 1000, 4000, 1.0), _grown(1.0, 4.0, 500, 1000, 4000, 1.0)
    (8.0, 64.0)
    >>> _grown(1.0, 1.0, 500, 1000, 4000, 1.0), _grown(1.0, 1.0, 500, 1000, 4000, 0.0)
    (4.0, 1.0)
    """
    power = math.log(large / small) / math.log(whole / half) if small > 0 and 0 < half < whole else 1.0
    return large * (wanted / whole) ** min(max(power, slowest), FASTEST)


def _many(regions: Regions) -> Regions:
    """So many regions that fitting them can be measured: the sample's, over and over, with a little noise."""
    import numpy as np

    rows = np.arange(REGIONS) % len(regions)
    many = regions[rows]
    changed = {"region_id": np.arange(REGIONS)}
    random = np.random.default_rng(0)
    for name in ("logits", "features", "latent"):
        values = getattr(many, name, None)
        if values is not None:
            noise = random.standard_normal(values.shape) * (0.01 * float(np.std(values)) + 1e-6)
            changed[name] = (values + noise).astype(values.dtype)
    return many.with_columns(**changed)
