"""How often limits that farther promises are exceeded, on images that are drawn many times.

    python benchmarks/promises.py
        from a large population that is made
    python benchmarks/promises.py --project . --run voc-faster_rcnn
        from the ID validation and test images of a run together, and its OOD images

For numbers of images, methods and limits, ID and OOD images are drawn (`--draws` times), a setting
is chosen on them as `farther choose` does, and its true rate of false alarms is read off the whole
population. Two tables are printed: the share of draws in which the true rate exceeds the limit, and
the share of unknown objects that are found, beside that of the best setting for one who knows the
population. Both are given for the guarantee "confidence" (95%), and in brackets for "none".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

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
from farther.metrics.statistics.risk_control import Guarantee

Costs = TypeVar("Costs", IdSteps, OodSteps)

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
            drawn_id = of_each(id_steps, taken, of_id)
            drawn_ood = of_each(ood_steps, taken, of_ood)
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


def of_each(costs: Costs, change: Callable[..., ThresholdSteps], *arguments: np.ndarray) -> Costs:
    """Costs of a method in other images: all steps, changed by a function."""
    changed = {}
    for step in fields(costs):
        changed[step.name] = change(getattr(costs, step.name), *arguments)
    return replace(costs, **changed)


def by_image(steps: ThresholdSteps) -> ThresholdSteps:
    """The units sorted by image."""
    return steps[np.argsort(steps.image, kind="stable")]


def taken(steps: ThresholdSteps, images: np.ndarray) -> ThresholdSteps:
    """The units of images, each image as often as it is listed.

    Args:
        steps: Units of all images, sorted by image.
        images: Number of each listed image; units get the position in this list as their image.
    """
    first = np.searchsorted(steps.image, images, side="left")
    end = np.searchsorted(steps.image, images, side="right")
    counts = end - first
    starts = np.repeat(first - np.cumsum(counts) + counts, counts)
    rows = starts + np.arange(counts.sum())
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
    image = np.sort(random.integers(0, POPULATION, count))
    return ThresholdSteps(random.random(count), image)


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
            of_id = of_each(pooled(parts, len(sides[0].names)), by_image)
            of_ood = of_each(ood.steps(name, inputs.threshold), by_image)
            steps[name] = (of_id, of_ood)
    return Population(steps, sum(len(side.names) for side in sides), len(ood.names), source)


def pooled(parts: Sequence[IdSteps], first: int) -> IdSteps:
    """The costs in the images of two splits, of which one has `first` images."""
    joined = []
    for name in ("flagged", "lost", "proposals"):
        one, other = (getattr(part, name) for part in parts)
        moved = ThresholdSteps(other.at, other.image + first)
        joined.append(ThresholdSteps.concatenate([one, moved]))
    return IdSteps(*joined)


#: What is promised of new images, beside what no promise gives.
GUARANTEES: tuple[Guarantee, ...] = ("confidence", "none")


@dataclass(frozen=True)
class DrawnChoices:
    """Settings that were chosen on drawn images, by what the population says about them.

    Args:
        exceeded: Guarantee → share of the draws in which the true rate exceeds the limit.
        found: Guarantee → mean share of the unknown objects that are found.
    """

    exceeded: dict[Guarantee, float]
    found: dict[Guarantee, float]


def drawn_choices(
    population: Population, images: int, limits: Sequence[float], draws: int, seed: int
) -> dict[float, DrawnChoices]:
    """Draws images and chooses on them, for each limit on the same ones.

    Args:
        population: What is drawn from.
        images: Number of ID and of OOD images.
        limits: Limits on the share of ID images with a false alarm.
        draws: Number of draws.
        seed: Seed of the draws.
    """
    random = np.random.default_rng([seed, images])
    rates = np.zeros((draws, len(limits), len(GUARANTEES)))
    found = np.zeros_like(rates)
    for draw in range(draws):
        drawn = population.drawn(random, images)
        for row, limit in enumerate(limits):
            for column, guarantee in enumerate(GUARANTEES):
                budget = Budget(max_false_alarms=limit, guarantee=guarantee)
                setting = drawn.chosen(budget).setting
                rates[draw, row, column] = population.alarm_rate(setting)
                found[draw, row, column] = population.found_share(setting)

    choices = {}
    for row, limit in enumerate(limits):
        exceeded = np.mean(rates[:, row] > limit, axis=0)
        mean_found = np.mean(found[:, row], axis=0)
        choices[limit] = DrawnChoices(
            dict(zip(GUARANTEES, exceeded.tolist(), strict=True)),
            dict(zip(GUARANTEES, mean_found.tolist(), strict=True)),
        )
    return choices


def print_choices(population: Population, options: argparse.Namespace) -> None:
    """Prints two tables: how often a limit is exceeded, and what is found within it."""
    exceeded = []
    found = []
    for count in options.methods:
        compared = population.only(count)
        choices_by_images = []
        for images in options.images:
            choices = drawn_choices(compared, images, options.limits, options.draws, options.seed)
            choices_by_images.append(choices)
            print(f"{count} methods, {images:,} images", file=sys.stderr, flush=True)
        for limit in options.limits:
            known = compared.chosen(Budget(max_false_alarms=limit, guarantee="none"))
            best = compared.found_share(known.setting)
            of_limit = [choices[limit] for choices in choices_by_images]
            start = f"| {len(compared.steps)} | {limit:g} |"
            exceeded.append(f"{start} {cells([choice.exceeded for choice in of_limit])} |")
            found.append(f"{start} {cells([choice.found for choice in of_limit])} | {best:.1%} |")

    columns = " | ".join(f"{images:,}" for images in options.images)
    print("Draws in which the limit is exceeded, in brackets without a promise:\n")
    print(f"| methods | limit | {columns} |")
    print("| ---: " * (2 + len(options.images)) + "|")
    print("\n".join(exceeded))
    print("\nUnknown objects found, in brackets without a promise:\n")
    print(f"| methods | limit | {columns} | at best |")
    print("| ---: " * (3 + len(options.images)) + "|")
    print("\n".join(found))


def cells(shares: Sequence[dict[Guarantee, float]]) -> str:
    """Cells of a row: a share with the promise, and in brackets the one without."""
    texts = [f"{share['confidence']:.1%} ({share['none']:.1%})" for share in shares]
    return " | ".join(texts)


def main() -> None:
    """Prints two tables in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--project", type=Path, help="a project whose run is drawn from")
    parser.add_argument("--run", help="the run; needed with --project")
    parser.add_argument("--benchmark", default="voc", help="its benchmark")
    parser.add_argument("--source", help="its source of proposals")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--methods", type=int, nargs="+", default=[1, 5, 14])
    parser.add_argument("--images", type=int, nargs="+", default=[50, 100, 250, 500, 1000])
    parser.add_argument("--limits", type=float, nargs="+", default=[0.01, 0.05, 0.2])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.project is None:
        population = made(np.random.default_rng(options.seed), max(options.methods))
    else:
        if options.run is None:
            parser.error("--run is needed with --project")
        population = of_run(options.project, options.run, options.benchmark, options.source)
    print_choices(population, options)


if __name__ == "__main__":
    main()
