"""`farther doctor --estimate`: time and disk of a complete run, from timings on a small sample.

Each stage is timed on the sample, with the library's own calls, and multiplied by the number of
images or regions. Fitting and scoring do not grow evenly for every method: they are timed on half
of the sample's regions and on all, and the power of growth between the two is extrapolated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.command.doctor.images import count_subset_images, has_regions, images_per_split
from farther.command.doctor.measured import Measured, measure_detector, measure_pass
from farther.command.doctor.method_cost import evaluation_seconds, method_cost
from farther.command.doctor.sampling import REGIONS, sample_benchmark, sample_images
from farther.command.output import duration, hanging, paragraph, size
from farther.command.project import Project
from farther.curation import subsets_used
from farther.detectors import Detector, of_entry
from farther.detectors.imported import Imported
from farther.detectors.passes import read_passes
from farther.errors import FartherError, ParameterError, choose
from farther.evaluation.cost import timed
from farther.evaluation.settings import EvaluationSettings
from farther.images.read import open_image
from farther.naming.registry import build
from farther.scoring.entries import MethodEntry, read_entry
from farther.tables import Regions
from farther.tables.files import digest


@dataclass(frozen=True)
class StageCost:
    """The cost of a stage on this machine.

    Args:
        stage: As DVC names it, with what of it was measured.
        seconds, bytes: Time and size of outputs; None where not measured.
        how: What was measured and what it was multiplied by, or why it was not measured.
    """

    stage: str
    seconds: float | None
    bytes: float | None
    how: str

    @classmethod
    def unknown(cls, stage: str, reason: str) -> StageCost:
        """The cost of a stage that was not measured."""
        return cls(stage, None, None, reason)


def estimate(project: Project, sample: int, runs: Sequence[str] | None = None) -> list[StageCost]:
    """The cost of each stage that is worth an estimate.

    Args:
        project: The project.
        sample: About how many images are measured, in equal shares of the datasets.
        runs: Names of runs; None for all.

    Raises:
        ParameterError: the sample is too small, or a run is unknown.
    """
    if sample < 2:
        raise ParameterError(f"--sample: expected at least 2 images, found {sample}")
    detectors = project.section("detectors")
    for run in runs or ():
        choose("run", run, detectors)
    costs = [_ingest(project, name, sample) for name in project.section("datasets")]
    for run in runs or detectors:
        costs += _of_run(project, run, sample)
    not_measured = "curate, embed, stratify, threshold, report"
    costs.append(StageCost.unknown(not_measured, "not measured: usually minutes"))
    return costs


def report(costs: Sequence[StageCost]) -> str:
    """The costs and their sums, as text."""
    lines = []
    for cost in costs:
        values = []
        if cost.seconds is not None:
            values.append(duration(cost.seconds))
        if cost.bytes:
            values.append(size(cost.bytes))
        lines.append(f"{cost.stage}: {', '.join(values) or '?'}")
        lines.append(hanging(cost.how, 4, 4))
    total = totals(costs)
    time = f"About {duration(total['seconds'])} in all on this machine"
    lines += [
        "",
        paragraph(f"{time}, and {size(total['bytes'])}, one stage after another."),
        "Estimates from a small sample may be off by a third or more.",
    ]
    return "\n".join(lines)


def totals(costs: Sequence[StageCost]) -> dict[str, float]:
    """Seconds and bytes of all stages together."""
    return {
        "seconds": sum(cost.seconds or 0 for cost in costs),
        "bytes": sum(cost.bytes or 0 for cost in costs),
    }


def _ingest(project: Project, dataset: str, sample: int) -> StageCost:
    """Reading and hashing each image; parsing annotations is not measured."""
    stage = f"ingest@{dataset}"
    root = project.section("datasets")[dataset].get("root")
    files = sample_images(project.folder / str(root), sample)
    if not files:
        return StageCost.unknown(stage, f"no images in {root}: not measured")
    seconds, _ = timed(lambda: [_read_image(file) for file in files])
    per_image = seconds / len(files)
    counts = []
    for subset in subsets_used(project.section("benchmarks")).get(dataset, ()):
        counts.append(count_subset_images(project, dataset, subset))
    known_counts = [count for count in counts if count is not None]
    if not counts or len(known_counts) < len(counts):
        reason = f"{1000 * per_image:.1f} ms per image, but the number of images is unknown"
        return StageCost.unknown(stage, reason)
    count = sum(known_counts)
    how = (
        f"{1000 * per_image:.1f} ms per image ({len(files)} measured) × {count:,} images, "
        "plus reading the annotations"
    )
    return StageCost(stage, per_image * count, None, how)


def _read_image(file: Path) -> tuple[Any, str]:
    """Size and digest of an image file, as `ingest` computes them."""
    with open_image(file) as image:
        return image.size, digest(file)


def _of_run(project: Project, run: str, sample: int) -> Iterator[StageCost]:
    """The stages of one run: infer, with its passes; fit and score, of each method; evaluate."""
    entry = project.section("detectors")[run]
    detector = of_entry(entry)
    if isinstance(detector, Imported):
        yield StageCost.unknown(f"infer@{run}", "imports detections: nothing to measure")
        return
    benchmark = str(entry.get("benchmark"))
    counts = images_per_split(project, benchmark)
    files = sample_benchmark(project, benchmark, sample)
    if not files:
        yield StageCost.unknown(f"infer@{run}", "none of its images is available: not measured")
        return
    yield from _RunCosts(project, run, detector, counts, files).stages()


@dataclass(frozen=True)
class _RunCosts:
    """Costs of a run whose detector opens images.

    Args:
        project: The project.
        run: Name of the run.
        detector: Its detector.
        counts: {split: number of images}; None where it is unknown.
        files: The sample of image files.
    """

    project: Project
    run: str
    detector: Detector
    counts: dict[str, int | None]
    files: list[Path]

    @property
    def entry(self) -> dict[str, Any]:
        """The run's entry in section `detectors`."""
        return self.project.section("detectors")[self.run]

    def stages(self) -> Iterator[StageCost]:
        """The cost of each stage."""
        batch_size = int(self.project.section("inference").get("batch_size", 16))
        measured = measure_detector(self.detector, self.files, batch_size)
        yield self._inference(f"infer@{self.run}", measured)

        regions_by_pass: dict[str | None, Regions] = {None: measured.regions}
        yield from self._passes(batch_size, regions_by_pass)
        regions_per_image = len(measured.regions) / len(self.files)
        yield from self._methods(regions_by_pass, regions_per_image)
        if len(measured.regions):
            yield self._evaluation(measured.regions, regions_per_image)

    def _inference(self, stage: str, measured: Measured, skipped: Sequence[str] = ()) -> StageCost:
        """The cost of a network on all images.

        Args:
            stage: Name of the cost.
            measured: The network on the sample.
            skipped: Splits that it does not process.
        """
        images = 0
        for split, count in self.counts.items():
            if split not in skipped:
                images += count or 0
        how = f"{measured} × {images:,} images"
        if has_regions(self.project, self.run, str(self.entry.get("benchmark"))):
            how = f"already done; from scratch: {how}"
        unknown = sum(count is None for count in self.counts.values())
        if unknown:
            how += f"; {unknown} splits of unknown size left out"
        if len(measured.regions):
            how += f"; bytes per region, uncompressed: {measured.columns()}"
        return StageCost(stage, measured.seconds * images, measured.bytes * images, how)

    def _passes(
        self, batch_size: int, regions_by_pass: dict[str | None, Regions]
    ) -> Iterator[StageCost]:
        """The costs of passes; adds their regions to `regions_by_pass`."""
        passes = read_passes(self.run, self.entry.get("passes"), self.project.encoder)
        for name, extra_inference in passes.items():
            stage = f"infer@{self.run}: pass {name}"
            try:
                measured = measure_pass(extra_inference, self.detector, self.files, batch_size)
                yield self._inference(stage, measured, extra_inference.skip)
                regions_by_pass[name] = measured.regions
            except FartherError as error:
                yield StageCost.unknown(stage, f"not measured: {error}")

    def _methods(
        self, regions_by_pass: dict[str | None, Regions], regions_per_image: float
    ) -> Iterator[StageCost]:
        """The costs of fitting and scoring, of each method."""
        fit = self.project.section("fit")
        fit_images = self.counts.get(str(fit.get("split", "train"))) or 0
        all_images = sum(count or 0 for count in self.counts.values())
        fit_regions = regions_per_image * fit_images
        score_regions = regions_per_image * all_images - fit_regions
        fit_regions = min(fit_regions, fit.get("max_regions") or fit_regions)
        for name, params in self.project.section("methods").items():
            stage = f"fit, score: {self.run}, {name}"
            try:
                entry = read_entry(name, params or {}, self.project.section("methods"))
                yield _method(stage, entry, regions_by_pass, fit_regions, score_regions)
            except FartherError as error:
                yield StageCost.unknown(stage, f"not measured: {error}")

    def _evaluation(self, sampled: Regions, regions_per_image: float) -> StageCost:
        """Matching the regions of each OOD split and resampling images, for each method.

        The rest takes less.
        """
        section = dict(self.project.section("evaluate"))
        settings = build(EvaluationSettings, "evaluate", section)
        splits = list(self.project.benchmark(str(self.entry["benchmark"])).splits)
        methods = len(self.project.section("methods"))
        images = 0
        for split in splits:
            images += (self.counts.get(settings.id_split) or 0) + (self.counts.get(split) or 0)
        regions = methods * regions_per_image * images
        seconds = evaluation_seconds(sampled, settings)
        how = (
            f"{2 * REGIONS:,} regions matched and drawn {settings.replicates} times in "
            f"{seconds:.2f} s × {regions:,.0f}: those of ID and OOD split, for {len(splits)} "
            f"splits and {methods} methods; an upper bound, since t* leaves fewer"
        )
        stage = f"evaluate: {self.run}, metrics"
        return StageCost(stage, seconds * regions / (2 * REGIONS), None, how)


def _method(
    stage: str,
    entry: MethodEntry,
    regions_by_pass: dict[str | None, Regions],
    fit_regions: float,
    score_regions: float,
) -> StageCost:
    """The cost of fitting and scoring a method.

    Raises:
        FartherError: the method cannot be used on the regions.
    """
    for name in (entry.pass_name, *entry.passes_beside):
        if name not in regions_by_pass:
            return StageCost.unknown(stage, f"not measured: the pass {name!r} was not")
    regions = regions_by_pass[entry.pass_name]
    regions = regions.beside({name: regions_by_pass[name] for name in entry.passes_beside})
    if not len(regions):
        return StageCost.unknown(stage, "the sample has no regions: not measured")
    if entry.search or entry.oracle:
        return StageCost.unknown(stage, "its parameters are searched for: not measured")
    cost = method_cost(entry, regions, fit_regions, score_regions)
    return StageCost(stage, cost.seconds, cost.bytes, cost.how)
