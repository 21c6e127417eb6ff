"""The section `evaluate` of params.yaml."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass

from farther.evaluation.sweeps import CONFIDENCES, KEPT
from farther.metrics.closed_set import COCO_IOUS
from farther.metrics.ood import Aupr
from farther.metrics.open_set.proposals import RATES
from farther.metrics.self_awareness import calibration, image_uncertainty
from farther.metrics.self_awareness.detector import ImageThreshold
from farther.metrics.self_awareness.matches import TRUE_POSITIVE_IOU
from farther.metrics.statistics.bootstrap import MAX_IMAGES, MIN_REPLICATES, Comparisons, ImageDraws
from farther.naming.registry import STRICT, Parameters, build
from farther.terms import Protocol

#: Choices of `EvaluationSettings.separation`: sections of a method's results on a split.
SeparatedSide = Literal["gtu", "uu", "correct_id"]


@dataclass(config=STRICT, kw_only=True)
class SelfAwarenessSettings(Parameters):
    """How a run is made self-aware: section `evaluate.self_awareness` of params.yaml.

    Args:
        aggregate: An image's uncertainty from those of its detections: "sum", "mean", "min", or
            "top-m", the mean of the m least uncertain ones, as in "top-3".
        image_threshold: Where the threshold is from above which an image is rejected: "pseudo_ood",
            the ID images without their objects; or "keep_95", which accepts 95% of the ID
            validation images. null: the former where the benchmark has such images.
        calibrator: How confidences are calibrated for each class: "linear" (least squares),
            "histogram" (bins of equal counts), "isotonic", "temperature" or "platt" scaling.
        iou: Smallest IoU of a true positive.
    """

    aggregate: str = "top-3"
    image_threshold: ImageThreshold | None = None
    calibrator: calibration.Kind = "linear"
    iou: float = Field(default=TRUE_POSITIVE_IOU, gt=0, lt=1)

    def __post_init__(self) -> None:
        image_uncertainty.count(self.aggregate)


@dataclass(config=STRICT, kw_only=True)
class ProposalSettings(Parameters):
    """How proposals are evaluated: section `evaluate.proposals` of params.yaml.

    Args:
        alarms: False alarms per ID image for which the threshold τ_o is chosen, on the calibration
            split.
        rates: False alarms per ID image at which the recall of proposals is reported (the FROC
            curve).
    """

    alarms: float = Field(default=0.2, gt=0)
    rates: Annotated[
        tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=1)
    ] = RATES


@dataclass(config=STRICT, kw_only=True)
class EvaluationSettings(Parameters):
    """How runs are evaluated: section `evaluate` of params.yaml.

    Args:
        id_split: ID split that the OOD splits are compared with.
        calibration_split: ID split that the thresholds of self-awareness, of proposals and of
            `farther choose` are chosen on. The τ of methods is taken from `fit.calibration_split`.
        iou: IoU from which on a detection matches an object.
        protocol: Formulas of the metrics: "paper", those of the papers' texts; "published-code",
            those of the code behind their tables, with all that it does differently.
        aupr: Area under a precision–recall curve: "step", average precision; "trapezoid", by
            straight lines, as some papers have it.
        separation: Further comparisons: "gtu", of ID detections with the OOD detections on
            labelled unknown objects; "uu", with those on no object; "correct_id", of the ID
            detections of the right class with all OOD detections.
        replicates: Number of bootstrap resamples of the images, for intervals and tests: 100 or
            more, or 0 for none.
        recomputed_replicates: The same for the metrics of wilderness, which are computed anew in
            each resample: about 0.1 s per resample on 20,000 detections; 0 for no intervals.
        replicate_thresholds: Whether the images that the τ of methods is taken from are resampled,
            too, and τ is taken again in each resample, so that intervals of metrics at τ include
            its uncertainty; `false` leaves it fixed.
        drawn_images: Largest number of images of a split that are resampled one by one; those of a
            larger split are resampled in 1,024 random groups, which takes less memory.
        seed: Seed of the bootstrap, and of the order in which wild images are added.
        comparisons: "all_pairs" corrects comparisons with the best method for the number of
            methods; "single" compares each with the best as if there were no other method.
        kept: Shares of ID detections that τ keeps, for the curves over τ.
        confidences: Values of t*, for the curves over t*. They change neither the t* that the other
            metrics are measured at (section `threshold`) nor those metrics.
        supercategories: The supercategory of each category, for metrics by supercategory.
        self_awareness: How a run is made self-aware.
        proposals: How proposals are evaluated.
        user_defined: User-defined metrics (of files in `extensions/`), and the parameters of each.
    """

    id_split: str = "test"
    calibration_split: str = "val"
    iou: float = Field(default=0.5, gt=0, le=1)
    protocol: Protocol = "paper"
    aupr: Aupr = "step"
    separation: tuple[SeparatedSide, ...] = get_args(SeparatedSide)
    replicates: int = Field(default=200, ge=0)
    recomputed_replicates: int = Field(default=0, ge=0)
    replicate_thresholds: bool = True
    drawn_images: int = Field(default=MAX_IMAGES, ge=1)
    seed: int = 0
    comparisons: Comparisons = "all_pairs"
    kept: tuple[float, ...] = KEPT
    confidences: tuple[float, ...] = CONFIDENCES
    supercategories: dict[str, str] = Field(default_factory=dict)
    self_awareness: SelfAwarenessSettings = Field(default_factory=SelfAwarenessSettings)
    proposals: ProposalSettings = Field(default_factory=ProposalSettings)
    user_defined: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("replicates", "recomputed_replicates")
    @classmethod
    def _enough_replicates(cls, replicates: int) -> int:
        """Refuses numbers of resamples that give no interval."""
        if 0 < replicates < MIN_REPLICATES:
            raise ValueError(
                f"{replicates} resamples are too few for intervals: write {MIN_REPLICATES} or "
                "more, or 0 for no intervals"
            )
        return replicates

    def draws(self, images: Collection[str], seed: int | None = None) -> ImageDraws | None:
        """Bootstrap draws of images; None without replicates.

        Args:
            images: Names of the images.
            seed: Seed of the draws; that of the settings when None.
        """
        if not self.replicates:
            return None
        if seed is None:
            seed = self.seed
        return ImageDraws(images, self.replicates, seed, self.drawn_images)

    @property
    def ious(self) -> list[float]:
        """COCO's IoU thresholds from `iou` on."""
        return [iou for iou in COCO_IOUS.tolist() if iou >= self.iou]


def read_settings(values: Mapping[str, Any]) -> EvaluationSettings:
    """The section `evaluate` of params.yaml.

    Raises:
        ParameterError: a key is unknown, or a value does not fit.
    """
    return build(EvaluationSettings, "params.yaml: evaluate", dict(values))
