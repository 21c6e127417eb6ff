"""How often limits and intervals that farther promises fail, on images that are drawn many times.

    python benchmarks/promises.py
        from a large population that is made
    python benchmarks/promises.py --project . --run voc-faster_rcnn
        from the ID validation and test images of a run together, and its OOD images
    python benchmarks/promises.py intervals
        coverage of the 95% intervals of the share found at τ, from a population of known scores

For numbers of images, methods and limits, ID and OOD images are drawn (`--draws` times), a setting
is chosen on them as `farther choose` does, and its true rate of false alarms is read off the whole
population. Printed are, for the guarantees "confidence" (95%) and "none", the share of draws in
which the true rate exceeds the limit; the mean true rate; and the share of unknown objects that are
found, beside that of the best setting for one who knows the population.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from farther.evaluation.deploy.results import Budget, DeploySetting
from farther.evaluation.deploy.search import (
    Candidate,
    Comparison,
    Part,
    Picked,
    Point,
    SearchSteps,
    best_setting,
)
from farther.evaluation.deploy.steps import IdImages, IdSteps, OodImages, OodSteps, ThresholdSteps
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import FittedRun
from farther.evaluation.settings import EvaluationSettings
from farther.methods.tau import threshold, weighted_thresholds
from farther.metrics.open_set.drawn_thresholds import ImageCopies
from farther.metrics.statistics.bootstrap import ImageDraws, interval

#: Images of the made population, of either side.
POPULATION = 20_000


@dataclass(frozen=True)
class Population:
    """ID and OOD images, and what each method does in them at one t*.

    Args:
        steps: Method → costs in the ID images and in the OOD images.
        id_images, ood_images: Numbers of images.
        source: Name of the source of proposals; None for none.
    """

    steps: dict[str, tuple[IdSteps, OodSteps]]
    id_images: int
    ood_images: int
    source: str | None = None

    def drawn(self, random: np.random.Generator, images: int) -> Population:
        """As many ID and OOD images, drawn with replacement; the same ones for all methods."""
        of_id = random.integers(0, self.id_images, images)
        of_ood = random.integers(0, self.ood_images, images)
        steps = {}
        for name, (id_steps, ood_steps) in self.steps.items():
            drawn_id = IdSteps(
                flagged=taken(id_steps.flagged, of_id),
                lost=taken(id_steps.lost, of_id),
                proposals=taken(id_steps.proposals, of_id),
            )
            drawn_ood = OodSteps(
                misclassified=taken(ood_steps.misclassified, of_ood),
                found=taken(ood_steps.found, of_ood),
                detections=taken(ood_steps.detections, of_ood),
                proposals=taken(ood_steps.proposals, of_ood),
                recovered=taken(ood_steps.recovered, of_ood),
            )
            steps[name] = (drawn_id, drawn_ood)
        return Population(steps, images, images, self.source)

    def only(self, methods: int) -> Population:
        """The population with the first methods."""
        names = list(self.steps)[:methods]
        steps = {name: self.steps[name] for name in names}
        return Population(steps, self.id_images, self.ood_images, self.source)

    def alarm_rate(self, setting: DeploySetting) -> float:
        """Share of the ID images with a false alarm."""
        id_steps, _ = self.steps[setting.method]
        alarmed = np.zeros(self.id_images, dtype=bool)
        alarmed[id_steps.flagged.below(setting.tau).image] = True
        if setting.objectness is not None:
            called = id_steps.proposals.at > setting.objectness
            alarmed[id_steps.proposals.image[called]] = True
        return float(np.mean(alarmed))

    def found_share(self, setting: DeploySetting) -> float:
        """Share of the unknown objects that are found."""
        _, ood_steps = self.steps[setting.method]
        found = ood_steps.found.at < setting.tau
        if setting.objectness is not None:
            found |= ood_steps.recovered.at > setting.objectness
        return float(np.mean(found))

    def chosen(self, budget: Budget) -> Point:
        """The best setting for a budget on these images."""
        names = list(self.steps)
        candidates = [Candidate(name, 0.0) for name in names]
        if self.source is not None:
            candidates += [Candidate(name, 0.0, "both") for name in names]
            candidates.append(Candidate(names[0], 0.0, "proposals"))
        comparison = Comparison.of(candidates, self.id_images, budget)
        part = Part(
            np.ones(self.id_images, dtype=bool),
            np.ones(self.ood_images, dtype=bool),
            confidence=comparison.level,
        )
        search = SearchSteps(self._steps_of, best_of, _not_halved, self.source)
        return best_setting(comparison.candidates, part, budget, search).point

    def _steps_of(self, method: str, _operating: float) -> tuple[IdSteps, OodSteps]:
        return self.steps[method]


def best_of(points: Sequence[Point], budget: Budget) -> Picked:
    """The best setting, without a test of whether it is significantly better."""
    return Picked(min(points, key=lambda point: point.rank(budget)))


def _not_halved(part: Part) -> tuple[Part, Part]:
    """No guarantee here halves the images."""
    return part, part


def taken(steps: ThresholdSteps, images: np.ndarray) -> ThresholdSteps:
    """The units of images, each image as often as it is listed.

    Args:
        steps: Units of all images.
        images: Number of each listed image; units get the position in this list as their image.
    """
    order = np.argsort(steps.image, kind="stable")
    first = np.searchsorted(steps.image[order], images, side="left")
    end = np.searchsorted(steps.image[order], images, side="right")
    counts = end - first
    starts = np.repeat(first - np.cumsum(counts) + counts, counts)
    rows = order[starts + np.arange(counts.sum())]
    return ThresholdSteps(steps.at[rows], np.repeat(np.arange(len(images)), counts))


def made(random: np.random.Generator, methods: int) -> Population:
    """A population in which scores of one image are alike, and methods are equally good."""
    steps = {}
    shared_id = units(random, 1.5)
    shared_ood = units(random, 0.0)
    proposals_id = objectness(random, 0.3)
    proposals_ood = objectness(random, 0.4)
    recovered = np.where(
        random.random(len(shared_ood.at)) < 0.4, random.random(len(shared_ood.at)), -np.inf
    )
    nothing = ThresholdSteps.concatenate([])
    for number in range(methods):
        flagged = noisy(random, shared_id)
        found = noisy(random, shared_ood)
        detected = np.isneginf(recovered)
        ood_steps = OodSteps(
            misclassified=ThresholdSteps(np.where(detected, found.at, -np.inf), found.image),
            found=ThresholdSteps(np.where(detected, found.at, np.inf), found.image),
            detections=found[detected],
            proposals=proposals_ood,
            recovered=ThresholdSteps(recovered, found.image),
        )
        steps[f"method {number}"] = (IdSteps(flagged, nothing, proposals_id), ood_steps)
    return Population(steps, POPULATION, POPULATION, "proposals")


def units(random: np.random.Generator, centre: float) -> ThresholdSteps:
    """One to five units per image, whose scores lie around one of their image's."""
    counts = random.integers(1, 6, POPULATION)
    image = np.repeat(np.arange(POPULATION), counts)
    of_image = random.normal(centre, 1, POPULATION)
    return ThresholdSteps(of_image[image] + random.normal(0, 0.7, len(image)), image)


def noisy(random: np.random.Generator, steps: ThresholdSteps) -> ThresholdSteps:
    """The same units with the scores of another method."""
    return ThresholdSteps(steps.at + random.normal(0, 0.5, len(steps.at)), steps.image)


def objectness(random: np.random.Generator, per_image: float) -> ThresholdSteps:
    """Proposals of random images."""
    count = round(per_image * POPULATION)
    return ThresholdSteps(random.random(count), random.integers(0, POPULATION, count))


def of_run(project: Path, run: str, benchmark: str, source: str | None) -> Population:
    """The ID validation and test images of a run together, and its OOD images."""
    files = RunFiles(run, benchmark, project / "artifacts")
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=0))
    splits = [RunSplit(files, inputs.settings.calibration_split), inputs.id_split]
    sides = [IdImages(inputs, split, source) for split in splits]
    ood = OodImages(inputs, inputs.tested, source)
    steps = {}
    for name, method in FittedRun.read(files).applicable.items():
        if method.computes and not method.is_oracle:
            parts = [side.steps(name, inputs.threshold) for side in sides]
            steps[name] = (pooled(parts, len(sides[0].names)), ood.steps(name, inputs.threshold))
    return Population(steps, sum(len(side.names) for side in sides), len(ood.names), source)


def pooled(parts: Sequence[IdSteps], first: int) -> IdSteps:
    """The costs in the images of two splits, of which one has `first` images."""
    joined = []
    for name in ("flagged", "lost", "proposals"):
        one, other = (getattr(part, name) for part in parts)
        moved = ThresholdSteps(other.at, other.image + first)
        joined.append(ThresholdSteps.concatenate([one, moved]))
    return IdSteps(*joined)


def rows(
    population: Population, methods: Sequence[int], images: Sequence[int], draws: int, seed: int
) -> Iterator[tuple[str, ...]]:
    """A row of the table for each number of images, number of methods, and limit."""
    for count in methods:
        compared = population.only(count)
        for limit in (0.01, 0.05, 0.2):
            known = compared.chosen(Budget(max_false_alarms=limit, guarantee="none"))
            best = compared.found_share(known.setting)
            for count_of_images in images:
                yield row(compared, count_of_images, limit, best, draws, seed)


def row(
    population: Population, images: int, limit: float, best: float, draws: int, seed: int
) -> tuple[str, ...]:
    """Draws images and chooses on them.

    Args:
        population: What is drawn from.
        images: Number of ID and of OOD images.
        limit: Limit on the share of ID images with a false alarm.
        best: Share of the unknown objects that the best setting finds.
        draws: Number of draws.
        seed: Seed of the draws.
    """
    random = np.random.default_rng([seed, images, round(1000 * limit)])
    rates: dict[str, list[float]] = {"confidence": [], "none": []}
    found: dict[str, list[float]] = {"confidence": [], "none": []}
    for _ in range(draws):
        drawn = population.drawn(random, images)
        for guarantee in ("confidence", "none"):
            budget = Budget(max_false_alarms=limit, guarantee=guarantee)
            setting = drawn.chosen(budget).setting
            rates[guarantee].append(population.alarm_rate(setting))
            found[guarantee].append(population.found_share(setting))
    cells = [f"{len(population.steps)}", f"{limit:g}", f"{images:,}"]
    for guarantee in ("confidence", "none"):
        exceeded = np.mean(np.array(rates[guarantee]) > limit)
        mean_rate = np.mean(rates[guarantee])
        cells += [f"{exceeded:.1%}", f"{mean_rate:.2%}", f"{np.mean(found[guarantee]):.1%}"]
    return (*cells, f"{best:.1%}")


# --------------------------------------------------------------------------------------------------
# intervals

#: Spread of the scores, between images and within them.
SPREAD = 0.7
#: Mean score of ID and of OOD detections.
OF_ID, OF_OOD = 2.0, 0.5
#: Detections per image.
PER_IMAGE = 2
#: Share of the ID detections that τ keeps.
KEEP = 0.95


def print_coverage(numbers: Sequence[int], draws: int, seed: int) -> None:
    """Prints the share of draws whose interval has the population's share found at its own τ."""
    spread = float(np.hypot(SPREAD, SPREAD))
    tau = NormalDist(OF_ID, spread).inv_cdf(1 - KEEP)
    true_share = NormalDist(OF_OOD, spread).cdf(tau)
    print("| images | coverage with τ | without | width with τ | without |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for images in numbers:
        covered = np.zeros((draws, 2))
        widths = np.zeros((draws, 2))
        for draw in range(draws):
            random = np.random.default_rng([seed, images, draw])
            for column, ends in enumerate(intervals_of(random, images)):
                low, high = ends
                covered[draw, column] = low <= true_share <= high
                widths[draw, column] = high - low
        shares = " | ".join(f"{share:.1%}" for share in covered.mean(axis=0))
        mean_widths = " | ".join(f"{width:.3f}" for width in widths.mean(axis=0))
        print(f"| {images:,} | {shares} | {mean_widths} |", flush=True)


def intervals_of(random: np.random.Generator, images: int) -> list[tuple[float, float]]:
    """The intervals of the share of OOD detections below τ: with τ drawn, too, and with τ fixed."""
    names = [f"{number:05}" for number in range(images)]
    image = np.repeat(np.arange(images), PER_IMAGE)
    id_scores = scores_of(random, OF_ID, images)
    ood_scores = scores_of(random, OF_OOD, images)
    draws = ImageDraws(names, 1000, int(random.integers(2**31)))
    of_validation = ImageDraws(names, 1000, int(random.integers(2**31)))
    weights = np.asarray(of_validation.weights)[:, image]
    fixed = threshold(id_scores, KEEP)
    drawn = weighted_thresholds(id_scores, weights, KEEP, "percentile")
    share = float(np.mean(ood_scores < fixed))
    ends = []
    for taus in (drawn, np.array([fixed])):
        copies = ImageCopies.of(image, ood_scores, images, taus)
        flagged = copies.weights(draws.weights) @ copies.flagged(image, ood_scores)
        ends.append(interval(flagged / len(image), value=share, images=images) or (share, share))
    return ends


def scores_of(random: np.random.Generator, mean: float, images: int) -> np.ndarray:
    """Scores of the detections of images, which depend on the image."""
    of_image = np.repeat(random.normal(mean, SPREAD, images), PER_IMAGE)
    return of_image + random.normal(0, SPREAD, len(of_image))


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("limits", "intervals"), default="limits")
    parser.add_argument("--project", type=Path, help="a project whose run is drawn from")
    parser.add_argument("--run", help="the run; needed with --project")
    parser.add_argument("--benchmark", default="voc", help="its benchmark")
    parser.add_argument("--source", help="its source of proposals")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--methods", type=int, nargs="+", default=[1, 5, 14])
    parser.add_argument("--images", type=int, nargs="+", default=[50, 100, 250, 1000])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "intervals":
        print_coverage(options.images, options.draws, options.seed)
        return
    if options.project is None:
        population = made(np.random.default_rng(options.seed), max(options.methods))
    else:
        if options.run is None:
            parser.error("--run is needed with --project")
        population = of_run(options.project, options.run, options.benchmark, options.source)
    print(
        "| methods | limit | images | exceeded | true rate | found | exceeded without a promise "
        "| true rate | found | found at best |"
    )
    print("| ---: " * 10 + "|")
    for cells in rows(population, options.methods, options.images, options.draws, options.seed):
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
