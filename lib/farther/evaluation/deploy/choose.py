"""Chooses what to deploy: the method and the thresholds t* and τ that fit a budget, from data that is not reported.

Thresholds are chosen on the ID validation split, and false alarms and recall measured on the ID
test split. For unknown objects, the images of every OOD split are halved: what is chosen on one
half is measured on the other, and the reverse (cross-fitting), so the values are those of choosing
on half of the data; the setting to deploy is chosen on all of it. With `choose_on` it is chosen on
one OOD split and measured on the others.

With a guarantee, t* is the run's own. Where there are several methods, the images that are chosen
on are halved once more: the method is chosen on one half, and τ on the other, as the guarantee is
of a method that was fixed before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property

import numpy as np
from pydantic_core import to_jsonable_python

from farther.cores import count_cores
from farther.errors import choose
from farther.evaluation import plots
from farther.evaluation.deploy.results import (
    LIMITS,
    Budget,
    DeployChoice,
    DeployChoices,
    DeploySetting,
    MeasuredCost,
    TradeOff,
)
from farther.evaluation.deploy.search import NOTHING_FLAGGED, Candidate, Part, Point, best_setting
from farther.evaluation.deploy.steps import (
    IdImages,
    IdSteps,
    OodImages,
    OodSteps,
    ThresholdSteps,
    halves,
)
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.methods import FittedRun
from farther.metrics.statistics import bootstrap
from farther.metrics.statistics.conformal import images_needed, zero_count_limit
from farther.metrics.weighting import ImageWeights, ratio
from farther.tables.documents import write_json

#: Points of a curve.
POINTS = 60

OUTCOMES = ("misclassified", "found", "missed")


def choose_deployment(
    inputs: RunInputs, budget: Budget, names: Sequence[str] | None = None
) -> DeployChoices:
    """What to deploy of a run for a budget.

    Args:
        inputs: The run's inputs; all methods have been fitted and have scores.
        budget: What it may cost.
        names: The methods to choose from; all of the run when None.

    Raises:
        DataError: an input is absent or wrong.
        ParameterError: `budget.choose_on` is not an OOD split of the run.

    Of the settings that meet a limit on misclassified objects, the one with the fewest false alarms
    is chosen. Without such a limit, or where no setting meets it together with the others, it is
    the one with the fewest misclassified objects within the other limits.
    """
    fitted = FittedRun.read(inputs.files).only(names)
    left_out = dict(fitted.refused)
    methods = []
    for name, method in fitted.applicable.items():
        if method.is_oracle:
            left_out[name] = "its parameters were chosen on test data"
        elif not method.computes:
            left_out[name] = "its scores were made elsewhere"
        else:
            methods.append(name)
    return _Chooser(inputs, methods, budget).choices(left_out)


def write_choice(inputs: RunInputs, budget: Budget) -> DeployChoices:
    """Writes `choices/<run>.json`; see `choose_deployment`."""
    choices = choose_deployment(inputs, budget)
    write_json(inputs.files.choice, to_jsonable_python(choices))
    return choices


class _Chooser:
    """The images of a run that are chosen on and measured on, and the steps of each method and t*."""

    def __init__(self, inputs: RunInputs, methods: Sequence[str], budget: Budget):
        self._inputs, self._methods, self._budget = inputs, methods, budget
        self._measured_settings: dict[DeploySetting, dict[str, MeasuredCost]] = {}
        self._held_out = IdImages(inputs, RunSplit(inputs.files, inputs.settings.calibration_split))
        self._tested = IdImages(inputs, inputs.id_split)
        self._ood = OodImages(inputs, _ood_splits(inputs, budget.choose_on))
        self._steps: dict[Candidate, tuple[IdSteps, OodSteps]] = {}
        if budget.choose_on is None:
            first = halves(self._ood.names, self._ood.split, inputs.settings.seed)
            self._chosen_on, self._measured_on = (
                np.ones(len(first), dtype=bool),
                np.ones(len(first), dtype=bool),
            )
            self._folds = [(first, ~first), (~first, first)]
        else:
            self._chosen_on = self._ood.in_split(budget.choose_on)
            self._measured_on = ~self._chosen_on
            self._folds = []
        self._all = Part(np.ones(len(self._held_out.names), dtype=bool), self._chosen_on)

    def choices(self, left_out: dict[str, str]) -> DeployChoices:
        """The best setting of all methods, of each, and for each limit alone."""
        budget, settings = self._budget, self._inputs.settings
        objects = self._unknown_objects if self._methods else np.zeros(len(self._ood.names))
        can = bool(self._methods) and all(
            objects[mask].sum() for mask in (self._chosen_on, self._measured_on)
        )
        missing = (
            "no method applies"
            if not self._methods
            else "no unknown objects are annotated in the OOD splits"
        )
        several = can and len(budget.limits) > 1
        is_large = len(self._tested.names) > settings.drawn_images
        with ThreadPoolExecutor(1 if is_large else count_cores()) as pool:
            each = pool.map(lambda name: self._choice([name], budget), self._methods if can else ())
            of_methods = dict(zip(self._methods, each, strict=False))
        return DeployChoices(
            run=self._inputs.files.run,
            benchmark=self._inputs.files.benchmark,
            budget=budget,
            id_splits=(settings.calibration_split, settings.id_split),
            choice=self._choice(self._methods, budget) if can else None,
            methods=of_methods,
            alone={axis: self._choice(self._methods, budget.only(axis)) for axis in budget.limits}
            if several
            else {},
            left_out=left_out,
            curves={name: self._curve(name) for name in self._methods} if can else {},
            notes=list(self._notes(objects)) if can else [f"Nothing can be chosen: {missing}."],
        )

    @cached_property
    def _unknown_objects(self) -> np.ndarray:
        """Number of unknown objects of each OOD image."""
        return self._steps_of(self._methods[0], self._inputs.threshold)[1].misclassified.counts(
            len(self._ood.names)
        )

    def _steps_of(self, method: str, operating: float) -> tuple[IdSteps, OodSteps]:
        key = method, operating
        if key not in self._steps:
            self._steps[key] = self._held_out.steps(*key), self._ood.steps(*key)
        return self._steps[key]

    def _operating(self, budget: Budget) -> list[float]:
        """The values of t* to try: the run's own, and larger ones that are within a limit on recall by themselves."""
        own = self._inputs.threshold
        if (
            budget.max_recall_loss is None
            or budget.guarantee != "none"
            or self._inputs.whole_images
        ):
            return [own]
        tried = [own]
        for operating in sorted(value for value in budget.confidences if value > own):
            lost = self._held_out.lost_by(operating)
            if np.sum(np.isneginf(lost.at)) > budget.max_recall_loss * len(lost.at):
                break
            tried.append(operating)
        return tried

    def _candidates(self, methods: Sequence[str], budget: Budget) -> list[Candidate]:
        return list(itertools.product(methods, self._operating(budget)))

    def _choice(self, methods: Sequence[str], budget: Budget) -> DeployChoice:
        """The best setting of some methods, and what was measured of it."""
        candidates = self._candidates(methods, budget)
        final = self._best(candidates, self._all, budget)
        folds = [
            (self._best(candidates, replace(self._all, ood=on), budget).setting, other)
            for on, other in self._folds
        ]
        measured, by_split = self._outcomes(folds or [(final.setting, self._measured_on)])
        return DeployChoice(
            **vars(final.setting),
            reached=final.reached,
            chosen_on=self._values(final),
            measured=measured | self._id_values(final.setting),
            by_split=by_split,
            folds=tuple(setting for setting, _ in folds),
        )

    def _best(self, candidates: Sequence[Candidate], part: Part, budget: Budget) -> Point:
        """The best setting on some images."""
        return best_setting(self._steps_of, candidates, part, budget, self._halved)

    def _halved(self, part: Part) -> tuple[Part, Part]:
        """Two halves of the images of a part."""
        seed = self._inputs.settings.seed + 1
        of_id = halves(self._held_out.names, np.zeros(len(part.id), dtype=np.int64), seed)
        of_ood = halves(self._ood.names, self._ood.split * 2 + part.ood, seed)
        return Part(part.id & of_id, part.ood & of_ood), Part(part.id & ~of_id, part.ood & ~of_ood)

    def _values(self, point: Point) -> dict[str, MeasuredCost]:
        """The costs of a setting on the images that it was chosen on."""
        setting, part = point.setting, point.part
        of_id, of_ood = self._steps_of(setting.method, setting.operating)
        lost, misclassified = of_id.lost.of(part.id), of_ood.misclassified.of(part.ood)
        flagged = int(np.sum(of_id.flagged.of(part.id).at < setting.tau))
        return {
            "misclassified": _counted(misclassified.at >= setting.tau, misclassified),
            "false_alarms": MeasuredCost(
                value=100 * point.false_alarms,
                count=flagged,
                of=int(part.id.sum()),
                images=int(part.id.sum()),
            ),
            "recall_lost": _counted(lost.at < setting.tau, lost),
        }

    def _outcomes(
        self, folds: Sequence[tuple[DeploySetting, np.ndarray]]
    ) -> tuple[dict[str, MeasuredCost], dict[str, dict[str, MeasuredCost]]]:
        """Outcomes of unknown objects, each under the setting of its fold; of all splits, and of each."""
        images = len(self._ood.names)
        counts = {name: np.zeros(images, dtype=np.int64) for name in OUTCOMES}
        for setting, mask in folds:
            _, steps = self._steps_of(setting.method, setting.operating)
            wrong, found = steps.misclassified.at >= setting.tau, steps.found.at < setting.tau
            for name, rows in zip(OUTCOMES, (wrong, found, ~wrong & ~found), strict=True):
                counts[name] += np.where(mask, steps.misclassified[rows].counts(images), 0)
        objects = np.sum(list(counts.values()), axis=0)
        weights = self._ood.weights()

        def shares(rows: np.ndarray) -> dict[str, MeasuredCost]:
            drawn = None if weights is None else weights[:, rows]
            return {
                name: _share(count[rows], objects[rows], drawn) for name, count in counts.items()
            }

        by_split = {
            split.name: shares(rows)
            for split in self._ood.splits
            if (rows := self._ood.in_split(split.name) & self._measured_on).any()
        }
        return shares(self._measured_on), by_split

    def _id_values(self, setting: DeploySetting) -> dict[str, MeasuredCost]:
        """The costs of a setting on the ID test split, which are the same for every budget."""
        if setting not in self._measured_settings:
            self._measured_settings[setting] = self._measured(setting)
        return self._measured_settings[setting]

    def _measured(self, setting: DeploySetting) -> dict[str, MeasuredCost]:
        steps, images = (
            self._tested.steps(setting.method, setting.operating),
            len(self._tested.names),
        )
        draws = self._inputs.id_draws
        weights = None if draws is None else draws.weights
        alarms = steps.flagged[steps.flagged.at < setting.tau].counts(images)
        lost = steps.lost[steps.lost.at < setting.tau].counts(images)
        once = np.ones(images, dtype=np.int64)
        # The accuracy that a classifier loses is its recall.
        precision = (
            {} if self._inputs.whole_images else {"map50_lost": self._map50_lost(setting, weights)}
        )
        return {
            "false_alarms": _share(alarms, once, weights, per=100),
            "images_with_false_alarms": _share((alarms > 0).astype(np.int64), once, weights),
            "recall_lost": _share(lost, steps.lost.counts(images), weights),
            **precision,
        }

    def _map50_lost(self, setting: DeploySetting, weights: ImageWeights | None) -> MeasuredCost:
        plain, drawn = (
            before - self._tested.map50(setting.method, setting.operating, setting.tau, of_images)
            for before, of_images in zip(self._map50_before, (None, weights), strict=True)
        )
        change = float(plain[0])
        return MeasuredCost(
            value=None if math.isnan(change) else change,
            images=len(self._tested.names),
            interval=None if weights is None else bootstrap.interval(drawn),
        )

    @cached_property
    def _map50_before(self) -> tuple[np.ndarray, np.ndarray]:
        """mAP50 at the run's t* without flagging, and its replicates (the same again without draws)."""
        draws = self._inputs.id_draws
        weights = (None, None if draws is None else draws.weights)
        plain, drawn = (
            self._tested.map50(None, self._inputs.threshold, 0.0, one) for one in weights
        )
        return plain, drawn

    def _curve(self, method: str) -> TradeOff:
        """Misclassified unknown objects by false alarms at the run's t*, for all τ."""
        operating = self._inputs.threshold
        flagged = np.sort(self._tested.flagged(method, operating).at)
        steps = np.sort(self._steps_of(method, operating)[1].misclassified.of(self._measured_on).at)
        taus = np.unique(np.concatenate([flagged, steps[np.isfinite(steps)]]))
        taus = np.append(np.maximum(taus, NOTHING_FLAGGED), np.inf)
        alarms = np.searchsorted(flagged, taus) / max(len(self._tested.names), 1)
        share = 1 - np.searchsorted(steps, taus) / max(len(steps), 1)
        x, y = plots.thin(alarms / max(alarms[-1], 1e-9), share, POINTS)
        return TradeOff(
            false_alarms=np.round(100 * alarms[-1] * x, 4).tolist(),
            misclassified=np.round(y, 6).tolist(),
        )

    def _notes(self, objects: np.ndarray) -> Iterator[str]:
        """Remarks on what the data can and cannot show."""
        budget, count = self._budget, int(objects[self._measured_on].sum())
        limit = budget.max_misclassified
        if limit is not None and limit * count < 1:
            yield f"One of the {count} unknown objects is {1 / count:.1%}, more than the limit of {limit:.2%}."
        if budget.guarantee == "conformal":
            part = self._best(self._candidates(self._methods, budget), self._all, budget).part
            known = self._held_out.lost_by(self._inputs.threshold).of(part.id)
            images = {
                "misclassified": int(np.sum(objects[part.ood] > 0)),
                "false_alarms": int(part.id.sum()),
                "recall_lost": len(np.unique(known.image)),
            }
            for axis, value in budget.limits.items():
                needed = images_needed(value / 100 if axis == "false_alarms" else value)
                if images[axis] < needed:
                    yield f"A guarantee of {LIMITS[axis]} {value:g} needs {needed} images; there are {images[axis]}."


def _ood_splits(inputs: RunInputs, choose_on: str | None) -> list[TestSplit]:
    """The OOD test splits, and the one to choose on where that is another one."""
    splits = list(inputs.tested)
    if choose_on is not None and choose_on not in inputs.roles.test:
        folder, settings, roles = (
            inputs.files.regions(choose_on).parent,
            inputs.settings,
            inputs.roles,
        )
        others = {
            settings.id_split,
            settings.calibration_split,
            "train",
            *roles.shifted,
            *roles.shifted_val,
            roles.pseudo_ood,
        }
        known = {entry.name for entry in folder.iterdir() if entry.is_dir()} - others
        splits.append(TestSplit(inputs, choose("OOD split", choose_on, {*roles.test, *known})))
    return splits


def _counted(flags: np.ndarray, units: ThresholdSteps) -> MeasuredCost:
    """The share of units, without an interval."""
    value = float(np.mean(flags)) if len(flags) else None
    return MeasuredCost(
        value=value, count=int(flags.sum()), of=len(flags), images=len(np.unique(units.image))
    )


def _share(
    count: np.ndarray, of: np.ndarray, weights: ImageWeights | None, per: int = 1
) -> MeasuredCost:
    """A ratio of counts per image, with its interval; one of 0 or of all has the limit of a count of 0."""
    total, images = int(of.sum()), int(np.sum(of > 0))
    counted = int(count.sum())
    value = per * counted / total if total else None
    interval = None
    if weights is not None and total:
        interval = bootstrap.interval(per * ratio(weights @ count, weights @ of))
        if counted == 0:
            interval = 0.0, per * zero_count_limit(images)
        elif counted == total and count.max() <= of.max():
            interval = per * (1 - zero_count_limit(images)), float(per)
    return MeasuredCost(value=value, count=counted, of=total, images=images, interval=interval)
