"""The budget of a deployed detector, and the method and thresholds chosen for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError, ParameterError
from farther.metrics.statistics.risk_control import Guarantee, images_needed, smallest_limit
from farther.naming.registry import STRICT, Parameters
from farther.tables.schema import read_typed

#: Axes that a budget may limit, and the parameter of each limit.
LIMITS = {
    "misclassified": "max_misclassified",
    "false_alarms": "max_false_alarms",
    "recall_lost": "max_recall_loss",
}

#: The images that each limit is shown on, in words.
SHOWN_ON = {
    "misclassified": "OOD images with unknown objects",
    "false_alarms": "ID validation images",
    "recall_lost": "ID validation images with known objects",
}

#: Limits that the dial of the report offers beside that of the budget.
DIAL_LIMITS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)

#: Values of t* that are tried above the run's own.
CONFIDENCES = tuple(round(0.05 * step, 2) for step in range(1, 20))


def _optional_per_image(share: float | None) -> float | None:
    """A limit on false alarms; one of 1 or more is refused, as it is one per 100 images.

    Raises:
        ValueError: it is 1 or more.
    """
    if share is None or share < 1:
        return share
    problem = "it is a share of the ID images, below 1"
    if share < 100:
        problem += f": for {share:g} of 100 ID images write {share / 100:g}"
    raise ValueError(problem)


@dataclass(config=STRICT, kw_only=True, frozen=True)
class Budget(Parameters):
    """Limits on the costs of a deployed detector: section `deploy` of params.yaml.

    All limits are shares: of the unknown objects, of the ID images and of the known objects. What
    they promise is in `farther.metrics.statistics.risk_control`.

    Args:
        max_misclassified: Largest share of the unknown objects that are misclassified; None for no
            limit.
        max_false_alarms: Largest share of the ID images that raise a false alarm: a detection
            flagged as unknown or a proposal called unknown, right or not. 0.05 allows 5 in 100
            images. Below 1; None for no limit.
        max_recall_loss: Largest share of the known objects that are lost: detected as their class
            at the run's t* without flagging, but not with it; None for no limit.
        guarantee: What the limits promise of new images that are exchangeable with those that are
            chosen on. "confidence": they hold, with `confidence`. "expected": they hold in
            expectation. "none": they hold on the images that are chosen on.
        confidence: Of the guarantee "confidence", for all limits and all settings that are compared
            together.
        choose_on: OOD split that is chosen on and left out of the measured values; None for halves
            of the images of all splits: what is chosen on one half is measured on the other.
        confidences: Values of t* that are tried where they are above the run's own and recall has a
            limit.

    Raises:
        ParameterError: nothing is limited, or a guarantee is asked for a limit of 0.
    """

    max_misclassified: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    max_false_alarms: Annotated[
        float | None, Field(ge=0, allow_inf_nan=False), AfterValidator(_optional_per_image)
    ] = None
    max_recall_loss: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    guarantee: Guarantee = "confidence"
    confidence: float = Field(default=0.95, gt=0, lt=1)
    choose_on: str | None = None
    confidences: tuple[Annotated[float, Field(ge=0, le=1)], ...] = CONFIDENCES

    def __post_init__(self) -> None:
        if not self.limits:
            raise ParameterError(
                f"a budget limits something: give {', '.join(LIMITS.values())}, or several of them"
            )
        if self.guarantee != "none":
            for axis, limit in self.limits.items():
                if limit == 0:
                    raise ParameterError(
                        f"{LIMITS[axis]} is 0, which no number of images can show: write a limit "
                        "above 0, or guarantee: none"
                    )

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by axis."""
        limits = {}
        for axis, name in LIMITS.items():
            limit = getattr(self, name)
            if limit is not None:
                limits[axis] = limit
        return limits

    @property
    def dial_axis(self) -> str:
        """The axis whose limit the dial of the report moves: that of false alarms if it is set."""
        if self.max_false_alarms is not None:
            return "false_alarms"
        return next(iter(self.limits))

    def with_limit(self, axis: str, limit: float) -> Budget:
        """The budget with another limit of an axis."""
        params = dict(vars(self))
        params[LIMITS[axis]] = limit
        return Budget(**params)

    def level(self, settings: int = 1) -> float:
        """The confidence of each limit where several settings are compared (Bonferroni).

        >>> round(Budget(max_false_alarms=0.05).level(5), 4)
        0.99
        """
        return 1 - (1 - self.confidence) / (settings * len(self.limits))

    def too_few(self, axis: str, images: int) -> str:
        """A sentence where images are too few to show a limit, whatever the setting; else "".

        Args:
            axis: The axis of the limit.
            images: Number of the images that it is shown on, those of `SHOWN_ON`.

        >>> Budget(max_false_alarms=0.05).too_few("false_alarms", 21).split("; ")[0]
        '21 ID validation images cannot show a limit of 0.05: 59 are needed'
        """
        if self.guarantee == "none":
            return ""
        limit = self.limits[axis]
        needed = images_needed(limit, self.guarantee, self.level())
        if images >= needed:
            return ""
        smallest = smallest_limit(images, self.guarantee, self.level())
        rounded = math.ceil(100 * smallest - 1e-9) / 100
        instead = "they show none"
        if rounded < 1:
            instead = f"{rounded:g} is the smallest that they can show"
        return (
            f"{images} {SHOWN_ON[axis]} cannot show a limit of {limit:g}: {needed} are needed; "
            f"{instead}."
        )

    def only(self, axis: str) -> Budget:
        """The budget with only the limit of one axis."""
        params = dict(vars(self))
        for name in LIMITS.values():
            if name != LIMITS[axis]:
                params[name] = None
        return Budget(**params)


@dataclass(config=STRICT, kw_only=True, frozen=True)
class MeasuredCost:
    """One value, and the counts that it was computed from.

    Args:
        value: Fraction. None where it is not defined.
        count, of: The value is count / of; None for a value that is not a ratio of counts.
        images: Images that it was measured on.
        interval: 95% interval over draws of the images; None where it was not computed.
        bound: The upper bound that was compared with the limit, with the guarantee "confidence".
    """

    value: float | None
    count: int | None = None
    of: int | None = None
    images: int = 0
    interval: tuple[float, float] | None = None
    bound: float | None = None


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DeploySetting:
    """A method with its thresholds.

    Args:
        method: Name in section `methods` of params.yaml.
        operating: The operating threshold t*.
        tau: The threshold τ: detections whose score is below it are flagged as unknown.
        alarms: What raises alarms: "detections", "proposals" or "both".
        source: Name of the source of proposals; None where none are called unknown.
        objectness: Proposals on no detection with a larger objectness are called unknown.
    """

    method: str
    operating: float
    tau: float
    alarms: Literal["detections", "both", "proposals"] = "detections"
    source: str | None = None
    objectness: float | None = None


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DeployChoice(DeploySetting):
    """A setting that was chosen for a budget, and its costs measured on other images.

    Args:
        method, operating, tau, alarms, source, objectness: See `DeploySetting`.
        reached: Whether the limits hold on the data that was chosen on (with a guarantee: whether
            it can be given). If not, the setting is the one that finds the most unknown objects
            within the other limits.
        chosen_on: {axis: value on the data that was chosen on}.
        measured: {axis: value on other images}. Of the unknown objects (by cross-fitting where
            halves are chosen on): `misclassified`, `found`, `found_by_proposals` (a part of found)
            and `missed`. Of the ID test images: `false_alarms`, `alarms_of_proposals` (a part:
            images with a proposal called unknown) and `alarms_per_image`, the number of flagged
            detections and called proposals. `recall_lost`, of their known objects; `map50_lost`,
            not of classifiers.
        by_split: {OOD split: {axis: value}} of the outcomes of unknown objects.
        folds: Settings chosen on either half, of any method; empty with `choose_on`. What is
            measured on the other half is the best setting of this method on this one.
    """

    reached: bool
    chosen_on: dict[str, MeasuredCost]
    measured: dict[str, MeasuredCost]
    by_split: dict[str, dict[str, MeasuredCost]]
    folds: tuple[DeploySetting, ...] = ()

    @property
    def setting(self) -> DeploySetting:
        """The method with its thresholds."""
        return DeploySetting(
            method=self.method,
            operating=self.operating,
            tau=self.tau,
            alarms=self.alarms,
            source=self.source,
            objectness=self.objectness,
        )

    def status(self, axis: str, limit: float) -> str:
        """Whether the interval of a measured value is within a limit.

        Returns:
            "met" or "exceeded" where the whole interval is within or beyond the limit, else, and
            without an interval, "open".
        """
        measured = self.measured[axis]
        if measured.value is None or measured.interval is None:
            return "open"
        low, high = measured.interval
        if high <= limit:
            return "met"
        if low > limit:
            return "exceeded"
        return "open"


@dataclass(config=STRICT, kw_only=True, frozen=True)
class MethodGain:
    """By how much one method is better than another within the same limits.

    Both are measured on the same images, and their difference is tested by a paired bootstrap.

    Args:
        method: The method that has the better value.
        than: The method that it is compared with.
        axis: "found": more unknown objects found; "false_alarms": fewer ID images with one.
        value: The difference, positive where `method` is better.
        interval: 95% interval of the difference; None where it was not computed.
    """

    method: str
    than: str
    axis: Literal["found", "false_alarms"]
    value: float
    interval: tuple[float, float] | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.interval is not None and self.interval[0] > 0


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DialStop:
    """The choice for one value of the limit that the dial moves; all else is as in the budget.

    Args:
        limit: The limit on `Budget.dial_axis`.
        choice: The setting to deploy; without `by_split` and `folds` for other limits than that of
            the budget.
        too_few: See `DeployChoices`.
    """

    limit: float
    choice: DeployChoice
    too_few: str = ""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DeployChoices:
    """The settings of a run that fit a budget.

    `artifacts/choices/<run>.json` holds those for the budget of params.yaml.

    Args:
        run, benchmark: Names.
        budget: The budget.
        id_splits: ID splits that were chosen on, and measured on.
        choice: The setting to deploy: of the cheapest method that is not significantly worse than
            the best one. None where nothing can be chosen, for a reason in `notes`.
        methods: The best setting of each method.
        alone: {axis: the best setting for the limit of this axis alone}, where there are several
            limits.
        left_out: {method: why it is not considered}.
        too_few: The first thing to know where images are too few to show a limit, in a sentence;
            "" where they are not.
        compared: Number of settings of a method, t* and source of alarms that share the confidence.
        notes: Remarks on what the data can and cannot show.
        passed_over: By how much the best method is better than the chosen one, which is cheaper, on
            the images that they were chosen on; None where the best one is chosen.
        over_cheapest: By how much the chosen method is better than the cheapest one on held-out
            images, each as in `methods`; None where the cheapest one is chosen, or cannot be
            compared.
        cheapest: The cheapest method, see `farther.evaluation.deploy.method_costs`; None where
            nothing can be chosen.
        dial: The choice for each of several limits, rising, that of the budget among them; [] where
            they were not asked for.
    """

    run: str
    benchmark: str
    budget: Budget
    id_splits: tuple[str, str]
    choice: DeployChoice | None
    methods: dict[str, DeployChoice]
    alone: dict[str, DeployChoice]
    left_out: dict[str, str]
    notes: list[str]
    too_few: str = ""
    compared: int = 1
    passed_over: MethodGain | None = None
    over_cheapest: MethodGain | None = None
    cheapest: str | None = None
    dial: list[DialStop] = Field(default_factory=list)

    @classmethod
    def read(cls, file: str | Path) -> DeployChoices:
        """The content of `choices/<run>.json`.

        Raises:
            DataError: the file is absent, or a field is missing or of another type; names file and
                field.
        """
        try:
            return read_typed(cls, file)
        except DataError as error:
            problem = error.problem.removeprefix("Value error, ").rstrip("?")
            raise DataError(
                f"{problem}: run `farther repro choose`",
                file=file,
                row=error.row,
                field=error.field,
            ) from None
