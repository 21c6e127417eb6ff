"""Chooses the setting to deploy: the method and the thresholds that fit a budget.

The thresholds are t* and τ of detections, and the objectness of proposals
(`farther.evaluation.deploy.knobs`). They are chosen on data that is not reported: on the ID
validation split, while false alarms and recall are measured on the ID test split. For unknown
objects, the images of every OOD split are halved: the setting chosen on one half is measured on the
other, and the reverse (cross-fitting), so the values are those of choosing on half of the data; the
setting to deploy is chosen on all of it. With `choose_on` it is chosen on one OOD split and
measured on the others.

Of several methods, the cheapest is taken that is not significantly worse than the best one on the
images that are chosen on, and significantly better than the cheapest of all unless it is that one
(`farther.evaluation.deploy.method_costs`, and a paired bootstrap).

Limits hold on new images with a stated confidence for all settings that are compared together, or
in expectation. For the latter, t* is the run's own, and where there are several settings the images
that are chosen on are halved once more: the method is chosen on one half, and its thresholds on the
other, as the guarantee is of a setting that was fixed before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from pydantic_core import to_jsonable_python

from farther.errors import choose
from farther.evaluation.deploy.dial import DialData, DialSource, dial_data
from farther.evaluation.deploy.gains import Axis, PairedCounts, gains_of
from farther.evaluation.deploy.kept_costs import KeptCosts
from farther.evaluation.deploy.method_costs import by_cost, passes
from farther.evaluation.deploy.results import (
    DIAL_LIMITS,
    Budget,
    DeployChoice,
    DeployChoices,
    DeploySetting,
    DialStop,
    MeasuredCost,
    MethodGain,
)
from farther.evaluation.deploy.search import (
    Candidate,
    Comparison,
    Part,
    Picked,
    Point,
    SearchSteps,
    best_setting,
)
from farther.evaluation.deploy.steps import (
    IdImages,
    IdSteps,
    OodImages,
    OodSteps,
    ThresholdSteps,
    halves,
)
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.methods import FittedRun
from farther.evaluation.results import FittedMethod
from farther.evaluation.tau import Calibration
from farther.metrics.statistics import bootstrap
from farther.metrics.statistics.risk_control import upper_bound
from farther.metrics.weighting import ImageWeights, ratio
from farther.processes import count_cores
from farther.scoring.inputs import TauSettings
from farther.tables.documents import write_json

OUTCOMES = ("misclassified", "found", "found_by_proposals", "missed")
#: Those that each object has one of.
EXCLUSIVE = ("misclassified", "found", "missed")


def choose_deployment(
    inputs: RunInputs,
    budget: Budget,
    names: Sequence[str] | None = None,
    code: str | None = None,
    source: str | None = None,
) -> DeployChoices:
    """The setting to deploy of a run for a budget.

    Of the settings that meet a limit on misclassified objects, the one with the fewest false alarms
    is the best. Without such a limit, or where no setting meets it together with the others, it is
    the one that finds the most unknown objects within the other limits, by detections and proposals
    together. The cheapest method is chosen whose best setting is not significantly worse.

    Args:
        inputs: The run's inputs; all methods have been fitted and have scores.
        budget: The limits on its costs.
        names: The methods to choose from; all of the run when None.
        code: Hash of the code that measures costs. With it, the costs on the ID test split are kept
            below `choices/<run>/`, and those of an earlier choice are taken from there where
            nothing that they depend on has changed.
        source: Name of the source of proposals that may be called unknown; None for none.

    Raises:
        DataError: an input is absent or wrong.
        ParameterError: `budget.choose_on` is not an OOD split of the run.
    """
    available = _AvailableMethods.read(inputs.files, names)
    chooser = _Chooser(inputs, available, budget, code, source)
    choices = chooser.choices()
    chooser.keep_costs()
    return choices


def write_choice(
    inputs: RunInputs,
    budget: Budget,
    tau: TauSettings | None = None,
    code: str | None = None,
    source: str | None = None,
) -> DeployChoices:
    """Writes `choices/<run>.json`, with the choices of the dial, and `dials/<run>.json`.

    Args:
        inputs, budget, code, source: See `choose_deployment`.
        tau: How `evaluate` takes τ; the defaults when None.
    """
    available = _AvailableMethods.read(inputs.files)
    chooser = _Chooser(inputs, available, budget, code, source)
    choices = chooser.choices()
    if choices.choice is not None:
        choices = replace(choices, dial=chooser.dial(choices))
        data = chooser.dial_data(choices, tau or TauSettings())
        write_json(inputs.files.dial, to_jsonable_python(data))
    else:
        inputs.files.dial.unlink(missing_ok=True)
    write_json(inputs.files.choice, to_jsonable_python(choices))
    chooser.keep_costs()
    return choices


@dataclass(frozen=True)
class _AvailableMethods:
    """Methods to choose from.

    Args:
        fitted: Name → fitted method.
        left_out: Name of each other method → why it is not considered.
        cost_order: The names, the cheapest first.
    """

    fitted: Mapping[str, FittedMethod]
    left_out: Mapping[str, str]
    cost_order: Sequence[str]

    @classmethod
    def read(cls, files: RunFiles, names: Sequence[str] | None = None) -> _AvailableMethods:
        """Those of a run with these names; all when None."""
        run = FittedRun.read(files).only(names)
        left_out = dict(run.refused)
        fitted = {}
        for name, method in run.applicable.items():
            if method.is_oracle:
                left_out[name] = "its parameters were chosen on test data"
            elif not method.computes:
                left_out[name] = "its scores were made elsewhere"
            else:
                fitted[name] = method
        return cls(fitted, left_out, by_cost(files, list(fitted), run.applicable))


@dataclass(frozen=True)
class _Fold:
    """Images to choose on, and other images to measure on: masks over all OOD images."""

    chosen_on: np.ndarray
    measured_on: np.ndarray


@dataclass(frozen=True)
class _MeasuredSetting:
    """A setting, and the mask of the OOD images that it is measured on."""

    setting: DeploySetting
    images: np.ndarray


@dataclass(frozen=True)
class _Searched:
    """What is compared to choose a setting.

    Args:
        candidates: The candidates.
        part: The images that are chosen on, and the confidence of each candidate.
    """

    candidates: Sequence[Candidate]
    part: Part


@dataclass(frozen=True)
class _Choice:
    """A choice, what it was picked instead of, and its outcomes.

    Args:
        choice: The choice.
        passed_over: See `Picked`.
        count_by_outcome: Outcome → number of unknown objects of each OOD image, ndarray of shape
            (I,), on held-out images.
    """

    choice: DeployChoice
    passed_over: MethodGain | None
    count_by_outcome: dict[str, np.ndarray]


class _Chooser:
    """Chooses settings of a run for a budget, and measures them.

    It holds the images that are chosen on and measured on, and the steps of each method and t*.

    Args:
        inputs: The run's inputs.
        available: The methods to choose from.
        budget: The limits.
        code: See `choose_deployment`.
        source: Name of the source of proposals; None for none.

    Attributes:
        id_costs: The costs on the ID test split of each setting that was chosen.
    """

    def __init__(
        self,
        inputs: RunInputs,
        available: _AvailableMethods,
        budget: Budget,
        code: str | None = None,
        source: str | None = None,
    ):
        self._inputs = inputs
        self._available = available
        self._methods = list(available.fitted)
        self._cost_order = list(available.cost_order)
        self._budget = budget
        settings = inputs.settings
        self._source = source
        self._passes = passes(inputs.files)
        validation_split = RunSplit(inputs.files, settings.calibration_split)
        self._validation = IdImages(inputs, validation_split, source)
        self._tested = IdImages(inputs, inputs.id_split, source)
        self._ood = OodImages(inputs, _ood_splits(inputs, budget.choose_on), source)

        # Costs by method and t*.
        self._steps: dict[tuple[str, float], tuple[IdSteps, OodSteps]] = {}
        self._kept: KeptCosts | None = None
        if code is not None:
            self._kept = KeptCosts(inputs, self._methods, code, source)
        self.id_costs: dict[DeploySetting, dict[str, MeasuredCost]] = {}

        if budget.choose_on is None:
            first_half = halves(self._ood.names, self._ood.split, settings.seed)
            self._chosen_on = np.ones(len(first_half), dtype=bool)
            self._measured_on = np.ones(len(first_half), dtype=bool)
            self._folds = [_Fold(first_half, ~first_half), _Fold(~first_half, first_half)]
        else:
            self._chosen_on = self._ood.in_split(budget.choose_on)
            self._measured_on = ~self._chosen_on
            self._folds = []
        self._all = Part(np.ones(len(self._validation.names), dtype=bool), self._chosen_on)
        self._search = SearchSteps(self._steps_of, self._pick, self._halved, source)

    def choices(self) -> DeployChoices:
        """The best setting of all methods, of each method, and for each limit by itself."""
        reason = self._why_nothing_can_be_chosen()
        if reason is not None:
            return self._without_choice(f"Nothing can be chosen: {reason}.")

        budget = self._budget
        choice_by_method = self._choice_by_method()
        choice_by_axis = {}
        if len(budget.limits) > 1:
            for axis in budget.limits:
                choice_by_axis[axis] = self._choice(self._methods, budget.only(axis)).choice
        chosen = self._choice(self._methods, budget)
        gain = self._gain_on_held_out(
            choice_by_method[chosen.choice.method], choice_by_method[self._cost_order[0]]
        )
        return replace(
            self._without_choice(),
            choice=chosen.choice,
            methods={name: choice.choice for name, choice in choice_by_method.items()},
            alone=choice_by_axis,
            too_few=self._too_few(budget),
            compared=len(self._comparison(self._methods, budget).candidates),
            notes=list(self._notes()),
            passed_over=chosen.passed_over,
            over_cheapest=gain,
            cheapest=self._cost_order[0],
        )

    def keep_costs(self) -> None:
        """Stores the costs on the ID test split of the settings that were chosen."""
        if self._kept is not None:
            self._kept.write(self.id_costs)

    def dial(self, choices: DeployChoices) -> list[DialStop]:
        """The choice for each limit of the dial, that of the budget among them.

        Args:
            choices: Those for the budget; one was made.
        """
        axis = self._budget.dial_axis
        own = self._budget.limits[axis]
        stops = []
        for limit in sorted({*DIAL_LIMITS, own}):
            budget = self._budget.with_limit(axis, limit)
            choice = choices.choice
            if limit != own or choice is None:
                choice = self._dial_choice(budget)
            stops.append(DialStop(limit=limit, choice=choice, too_few=self._too_few(budget)))
        return stops

    def dial_data(self, choices: DeployChoices, tau: TauSettings) -> DialData:
        """What each threshold finds and costs.

        Args:
            choices: All choices, whose thresholds are stops of the dial.
            tau: How `evaluate` takes τ.
        """
        inputs = self._inputs
        settings = [stop.choice.setting for stop in choices.dial]
        settings += [choice.setting for choice in choices.methods.values()]
        _, steps = self._steps_of(self._methods[0], inputs.threshold)
        tested_images = sum(len(split.images) for split in inputs.tested)
        # A split that is only chosen on follows those that are tested.
        recovered = steps.recovered[steps.recovered.image < tested_images]
        source = DialSource(
            inputs=inputs,
            methods=self._available.fitted,
            calibration=Calibration(inputs, tau),
            settings=settings,
            source=self._source,
            recovered=recovered,
            called=self._tested.called(inputs.threshold),
        )
        return dial_data(source)

    def _without_choice(self, *notes: str) -> DeployChoices:
        settings = self._inputs.settings
        return DeployChoices(
            run=self._inputs.files.run,
            benchmark=self._inputs.files.benchmark,
            budget=self._budget,
            id_splits=(settings.calibration_split, settings.id_split),
            choice=None,
            methods={},
            alone={},
            left_out=dict(self._available.left_out),
            notes=list(notes),
        )

    def _why_nothing_can_be_chosen(self) -> str | None:
        """The reason in words; None where a setting can be chosen."""
        if not self._methods:
            return "no method applies"
        objects = self._unknown_objects
        if not objects[self._chosen_on].sum() or not objects[self._measured_on].sum():
            return "the OOD splits have no unknown objects, or only crowds and difficult ones"
        return None

    def _choice_by_method(self) -> dict[str, _Choice]:
        """The best setting of each method, on one thread per core where splits are not large."""
        is_large = len(self._tested.names) > self._inputs.settings.drawn_images
        threads = 1 if is_large else count_cores()

        def choice(method: str) -> _Choice:
            return self._choice([method], self._budget)

        with ThreadPoolExecutor(threads) as pool:
            choices = pool.map(choice, self._methods)
            return dict(zip(self._methods, choices, strict=True))

    @cached_property
    def _unknown_objects(self) -> np.ndarray:
        """Number of unknown objects of each OOD image."""
        _, ood_steps = self._steps_of(self._methods[0], self._inputs.threshold)
        return ood_steps.misclassified.counts(len(self._ood.names))

    def _steps_of(self, method: str, operating: float) -> tuple[IdSteps, OodSteps]:
        """Costs of a method at a t*, on ID validation images and on OOD images."""
        key = (method, operating)
        if key not in self._steps:
            id_steps = self._validation.steps(method, operating)
            ood_steps = self._ood.steps(method, operating)
            self._steps[key] = (id_steps, ood_steps)
        return self._steps[key]

    def _operating(self, budget: Budget) -> list[float]:
        """The values of t* to try: the run's own, and larger ones where recall has a limit.

        With a confidence they are fixed before any image is looked at; with the other promises,
        those that by themselves exceed the limit on recall are left out.
        """
        own = self._inputs.threshold
        limit = budget.max_recall_loss
        if limit is None or budget.guarantee == "expected" or self._inputs.whole_images:
            return [own]

        to_try = [own]
        for operating in sorted(value for value in budget.confidences if value > own):
            if budget.guarantee == "none":
                lost = self._validation.lost_by(operating)
                if np.sum(np.isneginf(lost.at)) > limit * len(lost.at):
                    break
            to_try.append(operating)
        return to_try

    def _candidates(self, methods: Sequence[str], budget: Budget) -> list[Candidate]:
        """What is compared, in the order in which it is given up last: the cheapest first."""
        operating = self._operating(budget)
        ordered = sorted(methods, key=self._cost_order.index)
        candidates = [Candidate(method, operating[0]) for method in ordered]
        # A pass over the images gives no proposals.
        proposing = [method for method in ordered if method not in self._passes]
        if self._source is not None and proposing:
            candidates += [Candidate(method, operating[0], "both") for method in proposing]
            candidates.append(Candidate(proposing[0], operating[0], "proposals"))
        for value in operating[1:]:
            candidates += [Candidate(method, value) for method in ordered]
        return candidates

    def _comparison(self, methods: Sequence[str], budget: Budget) -> Comparison:
        """The candidates that the images can compare, and the confidence of each."""
        images = min(self._images_by_axis(self._all, budget).values())
        return Comparison.of(self._candidates(methods, budget), images, budget)

    def _images_by_axis(self, part: Part, budget: Budget) -> dict[str, int]:
        """Number of the images with units of each limited axis, among those chosen on."""
        lost = self._validation.lost_by(self._inputs.threshold).of(part.id)
        images_by_axis = {
            "misclassified": int(np.sum(self._unknown_objects[part.ood] > 0)),
            "false_alarms": int(part.id.sum()),
            "recall_lost": len(np.unique(lost.image)),
        }
        return {axis: images_by_axis[axis] for axis in budget.limits}

    def _choice(self, methods: Sequence[str], budget: Budget) -> _Choice:
        """The setting to take of some methods, its measured costs, and what each half prefers."""
        searched = self._searched(methods, budget)
        picked = best_setting(searched.candidates, searched.part, budget, self._search)
        final = picked.point
        of_folds = self._settings_of_folds([final.setting.method], searched, budget)
        preferred = of_folds
        if len(methods) > 1:
            # A half may prefer another method. What is measured is the method that is named.
            preferred = self._settings_of_folds(methods, searched, budget)

        count_by_outcome = self._held_out(final, of_folds)
        choice = DeployChoice(
            **vars(final.setting),
            reached=final.reached,
            chosen_on=self._values(final),
            measured=self._measured_values(final.setting, count_by_outcome),
            by_split=self._outcomes_by_split(count_by_outcome),
            folds=tuple(preferred),
        )
        return _Choice(choice, picked.passed_over, count_by_outcome)

    def _dial_choice(self, budget: Budget) -> DeployChoice:
        """The same of all methods for a stop of the dial, which shows neither splits nor halves."""
        searched = self._searched(self._methods, budget)
        final = best_setting(searched.candidates, searched.part, budget, self._search).point
        of_folds = self._settings_of_folds([final.setting.method], searched, budget)
        return DeployChoice(
            **vars(final.setting),
            reached=final.reached,
            chosen_on=self._values(final),
            measured=self._measured_values(final.setting, self._held_out(final, of_folds)),
            by_split={},
        )

    def _searched(self, methods: Sequence[str], budget: Budget) -> _Searched:
        """What is compared to choose among some methods, and at which confidence."""
        # A method by itself has the confidence that it has among all, shared by as many candidates.
        among_all = self._comparison(self._methods, budget)
        candidates = list(among_all.candidates)
        if len(methods) < len(self._methods):
            candidates = self._candidates(methods, budget)
            if budget.guarantee == "confidence":
                candidates = candidates[: len(among_all.candidates)]
        return _Searched(candidates, replace(self._all, confidence=among_all.level))

    def _settings_of_folds(
        self, methods: Sequence[str], searched: _Searched, budget: Budget
    ) -> list[DeploySetting]:
        """The best setting on either half of the OOD images; [] with `choose_on`.

        Args:
            methods: The methods to choose from, one of those of `searched` or all of them.
            searched: What was compared on all images.
            budget: The limits.
        """
        candidates = searched.candidates
        if len(methods) == 1:
            candidates = self._candidates(methods, budget)
        settings = []
        for fold in self._folds:
            of_fold = replace(searched.part, ood=fold.chosen_on)
            settings.append(best_setting(candidates, of_fold, budget, self._search).point.setting)
        return settings

    def _held_out(self, final: Point, of_folds: Sequence[DeploySetting]) -> dict[str, np.ndarray]:
        """Number of unknown objects of each outcome in each OOD image, on held-out images.

        Args:
            final: The setting to deploy.
            of_folds: The best setting of its method on either half.
        """
        to_measure = [_MeasuredSetting(final.setting, self._measured_on)]
        if of_folds:
            to_measure = []
            for fold, setting in zip(self._folds, of_folds, strict=True):
                to_measure.append(_MeasuredSetting(setting, fold.measured_on))
        return self._measured_outcomes(to_measure)

    def _measured_values(
        self, setting: DeploySetting, count_by_outcome: Mapping[str, np.ndarray]
    ) -> dict[str, MeasuredCost]:
        """All values of a setting on held-out images."""
        shares = self._outcome_shares(count_by_outcome, self._measured_on)
        return shares | self._id_values(setting)

    def _pick(self, points: Sequence[Point], budget: Budget) -> Picked:
        """The cheapest of several methods that is not significantly worse than the best one.

        If that is not the cheapest of all, it is also significantly better than the cheapest.

        Args:
            points: The best setting of each method, all on the same images.
            budget: The limits.
        """
        best = min(points, key=lambda point: (point.rank(budget), point.setting.method))
        comparable = [point for point in points if point.reached == best.reached]
        if len(comparable) == 1 or not self._inputs.settings.replicates:
            return Picked(best)

        counts = self._counts_where_chosen(comparable, budget)
        comparisons = self._inputs.settings.comparisons
        losses = gains_of(best.setting.method, counts, comparisons)
        by_cost = sorted(comparable, key=lambda point: self._cost_order.index(point.setting.method))
        cheapest = by_cost[0].setting.method
        for point in by_cost:
            method = point.setting.method
            if point is best:
                break
            loss = losses[method]
            is_undecided = loss.interval is None and loss.value != 0
            if is_undecided or loss.is_significant:
                continue
            # It must itself be worth more than the cheapest method: two differences that are not
            # significant may add up to one that is.
            gains = gains_of(method, counts, comparisons)
            if method == cheapest or gains[cheapest].is_significant:
                return Picked(point, loss if loss.value > 0 else None)
        return Picked(best)

    def _counts_where_chosen(self, points: Sequence[Point], budget: Budget) -> PairedCounts:
        """What settings are compared by, on the images that they were chosen on."""
        part = points[0].part
        setting_by_method = {point.setting.method: point.setting for point in points}
        axis = _compared_axis(budget, reached=points[0].reached)
        if axis == "false_alarms":
            counts = {}
            for name, setting in setting_by_method.items():
                id_steps, _ = self._steps_of(name, setting.operating)
                counts[name] = self._alarmed(id_steps, setting, len(self._validation.names))
            return PairedCounts(axis, counts, part.id.astype(np.int64), self._validation_weights)

        counts = {}
        for name, setting in setting_by_method.items():
            counts[name] = self._outcome_counts(setting)[axis]
        return PairedCounts(axis, counts, self._unknown_objects * part.ood, self._ood.weights())

    def _gain_on_held_out(self, chosen: _Choice, cheapest: _Choice) -> MethodGain | None:
        """By how much the chosen method is better than the cheapest one on held-out images.

        None where it is the cheapest one, or where only one of the two is within the limits.

        Args:
            chosen: The best setting of the chosen method alone. That of several methods may have
                another method on a half of the images.
            cheapest: The same of the cheapest method.
        """
        choice = chosen.choice
        other = cheapest.choice
        if choice.method == other.method or choice.reached != other.reached:
            return None

        axis = _compared_axis(self._budget, reached=choice.reached)
        if axis == "false_alarms":
            draws = self._inputs.id_draws
            images = len(self._tested.names)
            counts = PairedCounts(
                axis,
                {each.method: self._alarms(each) for each in (choice, other)},
                np.ones(images, dtype=np.int64),
                None if draws is None else draws.weights,
            )
        else:
            counts = PairedCounts(
                axis,
                {
                    choice.method: chosen.count_by_outcome[axis],
                    other.method: cheapest.count_by_outcome[axis],
                },
                self._unknown_objects * self._measured_on,
                self._ood.weights(),
            )
        return gains_of(choice.method, counts, "single")[other.method]

    def _alarms(self, setting: DeploySetting) -> np.ndarray:
        """Whether each ID test image raises a false alarm, ndarray of shape (I,), 0 or 1."""
        steps = self._tested.steps(setting.method, setting.operating)
        return self._alarmed(steps, setting, len(self._tested.names))

    def _alarmed(self, steps: IdSteps, setting: DeploySetting, images: int) -> np.ndarray:
        """Whether each of some ID images raises a false alarm, ndarray of shape (I,), 0 or 1."""
        alarms = _flagged(steps, setting).counts(images) + _called(steps, setting).counts(images)
        return (alarms > 0).astype(np.int64)

    @cached_property
    def _validation_weights(self) -> ImageWeights | None:
        """Weights of the ID validation images, shape (B, I); None without replicates."""
        draws = self._inputs.settings.draws(self._validation.names.tolist())
        return None if draws is None else draws.weights

    def _halved(self, part: Part) -> tuple[Part, Part]:
        """Two halves of the images of a part."""
        seed = self._inputs.settings.seed + 1
        same_group = np.zeros(len(part.id), dtype=np.int64)
        id_first = halves(self._validation.names, same_group, seed)
        ood_first = halves(self._ood.names, self._ood.split * 2 + part.ood, seed)
        first = Part(part.id & id_first, part.ood & ood_first)
        second = Part(part.id & ~id_first, part.ood & ~ood_first)
        return first, second

    def _values(self, point: Point) -> dict[str, MeasuredCost]:
        """The costs of a setting on the images that it was chosen on."""
        setting = point.setting
        part = point.part
        id_steps, ood_steps = self._steps_of(setting.method, setting.operating)
        outcomes = self._outcome_counts(setting)
        alarmed = self._alarmed(id_steps, setting, len(part.id))
        lost = _lost(id_steps, setting)
        return {
            "misclassified": _where_chosen(
                outcomes["misclassified"],
                ood_steps.misclassified.counts(len(part.ood)),
                part.ood,
                part,
            ),
            "found": _where_chosen(
                outcomes["found"], ood_steps.misclassified.counts(len(part.ood)), part.ood, part
            ),
            "false_alarms": _where_chosen(alarmed, np.ones(len(part.id)), part.id, part),
            "recall_lost": _where_chosen(
                lost.counts(len(part.id)), id_steps.lost.counts(len(part.id)), part.id, part
            ),
        }

    def _outcome_counts(self, setting: DeploySetting) -> dict[str, np.ndarray]:
        """Number of unknown objects of each outcome in each OOD image under a setting."""
        images = len(self._ood.names)
        _, steps = self._steps_of(setting.method, setting.operating)
        is_misclassified = steps.misclassified.at >= setting.tau
        is_found = steps.found.at < setting.tau
        is_recovered = ~is_misclassified & ~is_found
        if setting.objectness is None:
            is_recovered[:] = False
        else:
            is_recovered &= steps.recovered.at > setting.objectness
        is_found |= is_recovered
        is_missed = ~is_misclassified & ~is_found
        counts = {}
        rows_of = (is_misclassified, is_found, is_recovered, is_missed)
        for name, rows in zip(OUTCOMES, rows_of, strict=True):
            counts[name] = steps.misclassified[rows].counts(images)
        return counts

    def _measured_outcomes(
        self, measured_settings: Sequence[_MeasuredSetting]
    ) -> dict[str, np.ndarray]:
        """The same, each image under the setting that it is measured with."""
        images = len(self._ood.names)
        count_by_outcome = {name: np.zeros(images, dtype=np.int64) for name in OUTCOMES}
        for measured in measured_settings:
            for name, counts in self._outcome_counts(measured.setting).items():
                count_by_outcome[name] += np.where(measured.images, counts, 0)
        return count_by_outcome

    def _outcomes_by_split(
        self, count_by_outcome: Mapping[str, np.ndarray]
    ) -> dict[str, dict[str, MeasuredCost]]:
        """Shares of the outcomes of unknown objects on held-out images of each OOD split."""
        by_split = {}
        for split in self._ood.splits:
            in_split = self._ood.in_split(split.name) & self._measured_on
            if in_split.any():
                by_split[split.name] = self._outcome_shares(count_by_outcome, in_split)
        return by_split

    def _outcome_shares(
        self, count_by_outcome: Mapping[str, np.ndarray], images: np.ndarray
    ) -> dict[str, MeasuredCost]:
        """Share of each outcome in the unknown objects of the images that a mask selects."""
        weights = self._ood.weights()
        if weights is not None:
            weights = weights[:, images]
        objects = np.sum([count_by_outcome[name] for name in EXCLUSIVE], axis=0)
        shares = {}
        for name, count in count_by_outcome.items():
            if name in EXCLUSIVE or self._source is not None:
                shares[name] = _share(count[images], objects[images], weights)
        return shares

    def _id_values(self, setting: DeploySetting) -> dict[str, MeasuredCost]:
        """The costs of a setting on the ID test split, which are the same for every budget."""
        if setting not in self.id_costs:
            costs = None if self._kept is None else self._kept.of(setting)
            self.id_costs[setting] = costs or self._measured(setting)
        return self.id_costs[setting]

    def _measured(self, setting: DeploySetting) -> dict[str, MeasuredCost]:
        """Measures the costs of a setting on the ID test split."""
        draws = self._inputs.id_draws
        weights = None if draws is None else draws.weights
        images = len(self._tested.names)
        steps = self._tested.steps(setting.method, setting.operating)
        flagged = _flagged(steps, setting).counts(images)
        called = _called(steps, setting).counts(images)
        once = np.ones(images, dtype=np.int64)
        costs = {"false_alarms": _share((flagged + called > 0).astype(np.int64), once, weights)}
        if setting.objectness is not None:
            costs["alarms_of_proposals"] = _share((called > 0).astype(np.int64), once, weights)
        costs["alarms_per_image"] = _share(flagged + called, once, weights)
        lost = _lost(steps, setting).counts(images)
        costs["recall_lost"] = _share(lost, steps.lost.counts(images), weights)
        # The accuracy that a classifier loses is its recall.
        if not self._inputs.whole_images:
            costs["map50_lost"] = self._map50_lost(setting, weights)
        return costs

    def _map50_lost(self, setting: DeploySetting, weights: ImageWeights | None) -> MeasuredCost:
        method = setting.method
        operating = setting.operating
        after = self._tested.map50(method, operating, setting.tau, None)
        change = float(self._map50_before[0] - after[0])

        interval = None
        if weights is not None:
            after_replicates = self._tested.map50(method, operating, setting.tau, weights)
            interval = bootstrap.interval(
                self._map50_before_replicates - after_replicates, value=change
            )
        return MeasuredCost(
            value=None if math.isnan(change) else change,
            images=len(self._tested.names),
            interval=interval,
        )

    @cached_property
    def _map50_before(self) -> np.ndarray:
        """mAP50 at the run's t* without flagging, ndarray of shape (1,)."""
        return self._tested.map50(None, self._inputs.threshold, 0.0, None)

    @cached_property
    def _map50_before_replicates(self) -> np.ndarray:
        """Replicates of `_map50_before`, ndarray of shape (B,); B = 1 without draws."""
        draws = self._inputs.id_draws
        if draws is None:
            return self._map50_before
        return self._tested.map50(None, self._inputs.threshold, 0.0, draws.weights)

    def _notes(self) -> Iterator[str]:
        """Remarks on what the data can and cannot show."""
        count = int(self._unknown_objects[self._measured_on].sum())
        limit = self._budget.max_misclassified
        if limit is not None and limit * count < 1:
            yield (
                f"One of the {count} unknown objects is {1 / count:.1%}, "
                f"more than the limit of {limit:.2%}."
            )

    def _too_few(self, budget: Budget) -> str:
        """A sentence on limits that the images cannot show, whatever the setting; "" for none."""
        for axis, images in self._images_by_axis(self._all, budget).items():
            sentence = budget.too_few(axis, images)
            if sentence:
                return sentence
        return ""


def _flagged(steps: IdSteps, setting: DeploySetting) -> ThresholdSteps:
    """Detections of ID images that are flagged."""
    return steps.flagged.below(setting.tau)


def _called(steps: IdSteps, setting: DeploySetting) -> ThresholdSteps:
    """Proposals of ID images that are called unknown."""
    if setting.objectness is None:
        return ThresholdSteps.concatenate([])
    return steps.proposals[steps.proposals.at > setting.objectness]


def _lost(steps: IdSteps, setting: DeploySetting) -> ThresholdSteps:
    """Known objects that are lost."""
    return steps.lost.below(setting.tau)


def _ood_splits(inputs: RunInputs, choose_on: str | None) -> list[TestSplit]:
    """The OOD test splits, and the one to choose on where it is not a test split.

    Raises:
        ParameterError: `choose_on` is not an OOD split of the run.
    """
    splits = list(inputs.tested)
    roles = inputs.roles
    if choose_on is None or choose_on in roles.test:
        return splits

    not_ood = {
        inputs.settings.id_split,
        inputs.settings.calibration_split,
        "train",
        *roles.shifted,
        *roles.shifted_val,
        roles.pseudo_ood,
    }
    run_folder = inputs.files.regions(choose_on).parent
    stored = {entry.name for entry in run_folder.iterdir() if entry.is_dir()}
    name = choose("OOD split", choose_on, {*roles.test, *(stored - not_ood)})
    return [*splits, TestSplit(inputs, name)]


def _where_chosen(
    count: np.ndarray, of: np.ndarray, images: np.ndarray, part: Part
) -> MeasuredCost:
    """A share on the images that were chosen on, and the bound that was compared with a limit.

    Args:
        count: Count of each image, ndarray of shape (I,).
        of: The units of each image, ndarray of shape (I,).
        images: Mask of the images.
        part: What limits promise.
    """
    counts = count[images]
    sizes = of[images].astype(np.float64)
    total = int(sizes.sum())
    bound = None
    if part.guarantee == "confidence":
        bound = upper_bound(counts, sizes, part.confidence)
    return MeasuredCost(
        value=int(counts.sum()) / total if total else None,
        count=int(counts.sum()),
        of=total,
        images=int(np.sum(sizes > 0)),
        bound=bound,
    )


def _compared_axis(budget: Budget, *, reached: bool) -> Axis:
    """What settings within the same limits are compared by."""
    if budget.max_misclassified is not None and reached:
        return "false_alarms"
    return "found"


def _share(count: np.ndarray, of: np.ndarray, weights: ImageWeights | None) -> MeasuredCost:
    """A ratio of counts per image, with its interval.

    Args:
        count: Count of each image, ndarray of shape (I,).
        of: The units of each image that are counted, ndarray of shape (I,).
        weights: Weights of the images, shape (B, I); None for no interval.
    """
    total = int(of.sum())
    images = int(np.sum(of > 0))
    counted = int(count.sum())
    if not total:
        return MeasuredCost(value=None, count=counted, of=total, images=images)

    interval = None
    if weights is not None:
        # More counts than units are no share: false alarms per image. Without one of them, the
        # interval is that of the share of images with one.
        is_share = bool(np.all(count <= of))
        interval = bootstrap.interval(
            ratio(weights @ count, weights @ of),
            value=counted / total,
            images=images if is_share else None,
        )
    return MeasuredCost(
        value=counted / total, count=counted, of=total, images=images, interval=interval
    )
