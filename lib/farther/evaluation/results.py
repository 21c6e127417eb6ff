"""The typed metrics of a run, and the parts of them that are stored.

The stage `evaluate` makes `results/<run>.parquet` and `results/<run>.json` of an `Evaluation`;
reports and commands read these. Values are fractions, None where they are not defined. The keys of
maps are names of metrics, methods, splits or classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from farther.errors import DataError
from farther.evaluation.settings import EvaluationSettings, SelfAwarenessSettings
from farther.methods.loading import Described
from farther.metrics.catalogue import Metric
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.scoring.search import Search
from farther.tables.documents import SEAL, parse_json, read_sealed, write_sealed
from farther.tables.schema import Schema

#: A value or a count.
Number = int | float | None

#: Bounds of a 95% interval; None where there is none.
Interval = tuple[float, float] | None


#: {metric of the catalogue: its key in `ClosedSetResults`}, where the two differ.
CLOSED_SET_KEYS = {"map": "ap", "map50": "ap50"}


class Stored(Schema):
    """Base of stored content: no further fields, and lists of JSON for tuples."""

    model_config = ConfigDict(strict=False, extra="forbid")


T = TypeVar("T", bound=Stored)


class MetricValues(Stored):
    """Values of metrics, and the counts that they are computed from.

    Args:
        values: Values and counts by key.
        intervals: 95% intervals by key, of the metrics that have one.
        no_interval: Why a metric with a value has no interval, by key; {} without replicates.
        share_images: Number of the images with the units that a share counts, by key, of the
            shares that have an exact interval where they are 0 or 1.
    """

    values: dict[str, Number] = Field(default_factory=dict)
    intervals: dict[str, Interval] = Field(default_factory=dict)
    no_interval: dict[str, str] = Field(default_factory=dict)
    share_images: dict[str, int] = Field(default_factory=dict)


class ClosedSetResults(MetricValues):
    """Metrics of known classes on the ID split; see `farther.metrics.closed_set`.

    Args:
        per_class: Class → ap, ap50, ar and objects.
    """

    per_class: dict[str, dict[str, Number]] = Field(default_factory=dict)


class KindOfError(Stored):
    """Errors of one kind on known objects: their number, and the AP gained by correcting them."""

    count: int
    gain: float | None
    interval: Interval = None


class ErrorBudget(Stored):
    """Errors of a detector on the known objects of the ID split.

    Args:
        ap: AP at the IoU of the evaluation.
        kinds: Kind of error → its errors.
    """

    ap: float | None
    kinds: dict[str, KindOfError]


class ClassifierResults(MetricValues):
    """Accuracy and calibration of a classifier on the ID split, and on each shifted split."""

    shifted: dict[str, dict[str, float | None]] = Field(default_factory=dict)


class Impact(Stored):
    """Wilderness impact at one recall.

    Args:
        impact, impact_by_precision: At each wilderness ratio.
        average_impact, average_impact_by_precision: Means over the ratios.
        classes: Number of classes that reach the recall.
    """

    impact: list[float | None]
    impact_by_precision: list[float | None]
    average_impact: float | None
    average_impact_by_precision: float | None
    classes: int


class ErrorCauses(Stored):
    """Causes of detections over recall; see `farther.evaluation.wilderness.WildImages.errors`."""

    ratio: float
    similar: list[list[str]]
    recalls: list[float]
    classes: list[int]
    detections: list[int]
    shares: dict[str, list[float | None]]
    intervals: dict[str, list[Interval]] = Field(default_factory=dict)


class BestThresholds(Stored):
    """Thresholds with the largest F_β, as means and of each class.

    Each maps a part of the measure to a list over wilderness ratios.
    """

    mean: dict[str, list[float]] | None
    classes: dict[str, dict[str, list[float]]]


class OperatingPoints(Stored):
    """The best thresholds by β; see `farther.metrics.wilderness.Wilderness.best_thresholds`."""

    ratios: list[float]
    betas: dict[str, BestThresholds]


class Margins(Stored):
    """Class minus background probability of detections.

    Args:
        histogram: Share of the detections in each bin.
        classes: Class → mean, sd, rejected and detections.
    """

    histogram: list[float]
    classes: dict[str, dict[str, Number]]


class BackgroundResults(MetricValues):
    """Margins of correct detections of known objects, and of detections of unknown objects."""

    known: Margins
    unknown: Margins


class WildernessResults(Stored):
    """Effect of images without known objects; see `farther.evaluation.wilderness`."""

    ratio: float
    map_closed: float | None
    map_open: float | None
    ratios: list[float]
    at_recall: dict[str, Impact]
    diagnosis_recall: float
    confusion: dict[str, dict[str, int]]
    errors: ErrorCauses
    closed_errors: ErrorCauses
    operating_points: OperatingPoints
    background: BackgroundResults | None
    intervals: dict[str, Interval] = Field(default_factory=dict)


class Reliability(Stored):
    """A reliability diagram with one entry per confidence bin.

    See `farther.metrics.self_awareness.reliability`.
    """

    lower: list[float]
    confidence: list[float | None]
    performance: list[float | None]
    detections: list[int]


class CalibratedReliability(Reliability):
    """A reliability diagram of calibrated confidences.

    Args:
        laece: Their LaECE; None without detections.
    """

    laece: float | None


class ExampleImage(Stored):
    """An image of a split, its uncertainty, and whether it is rejected."""

    image_id: str
    uncertainty: float
    is_rejected: bool


class AcceptedImages(Stored):
    """The images of a split under an image threshold.

    Args:
        images, rejected_images: Number of images, and of rejected ones.
        histogram: Share of the images in each bin of uncertainty.
        severity: Severity of the shift; None for OOD images.
        auroc: AUROC against all OOD images; None for OOD images.
        metrics: Metrics of the detections in accepted images; {} for OOD images.
        examples: One accepted and one rejected image, where there are such images.
    """

    images: int
    rejected_images: int
    histogram: list[float]
    severity: int | None = None
    auroc: float | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)
    examples: list[ExampleImage] = Field(default_factory=list)


class Ablation(Stored):
    """A row of the ablation of self-awareness (SAOD, Table 7): its parts, and their metrics."""

    confidence_threshold: str
    calibrator: str | None
    image_threshold: str
    metrics: dict[str, Number]


class SelfAwarenessResults(MetricValues):
    """Self-awareness of a run; see `farther.evaluation.self_awareness`."""

    settings: SelfAwarenessSettings
    detector: SelfAwareDetector
    per_class: dict[str, dict[str, Number]]
    reliability: Reliability
    reliability_before: Reliability
    reliabilities: dict[str, dict[str, CalibratedReliability]]
    splits: dict[str, dict[str, float | None]]
    images: dict[str, AcceptedImages]
    map_by_uncertainty: list[float | None]
    image_thresholds: dict[str, dict[str, float | None]]
    calibrated: dict[str, dict[str, float | None]]
    ablation: list[Ablation]
    aggregates: dict[str, dict[str, float | None]]
    uncertainties: dict[str, MetricValues]
    accuracy: dict[str, MetricValues]
    sweeps: dict[str, list[dict[str, float | None]]]
    ious: list[dict[str, float | None]]
    top_k: list[dict[str, Number]]
    by_threshold: list[dict[str, float | None]]
    thresholds_on_test: dict[str, float | None]


class SplitCounts(Stored):
    """Counts of a split.

    Args:
        images, failed_images: Images, and those that the detector could not read.
        objects, regions: Annotated objects, and regions at or above t*.
        no_detection: Share of the images without a region at or above t*.
        inputs: Hashes of the tables that were read; see `farther.evaluation.files.RunSplit`.
    """

    images: int
    failed_images: int
    objects: int
    regions: int
    no_detection: float | None
    inputs: dict[str, str]


class DetectorResults(Stored):
    """Results of a detector that depend on no method; see `farther.evaluation.detector`.

    Args:
        closed_set, error_budget, classifier: On the ID split; `error_budget` is None for a
            classifier, `classifier` for a detector of objects.
        wilderness, self_awareness: On all splits.
        splits: Counts of the ID split and of each OOD split.
        map_at: t* → map50 and map of the detections at or above it.
    """

    closed_set: ClosedSetResults
    error_budget: ErrorBudget | None
    classifier: ClassifierResults | None
    wilderness: WildernessResults
    self_awareness: SelfAwarenessResults
    splits: dict[str, SplitCounts]
    map_at: dict[str, dict[str, float | None]]


class FittedMethod(Described):
    """The content of a method's `method.json`.

    Args:
        needs: Columns of regions that it reads.
        remarks: Remarks on the fitted method.
        choice: How its parameters were chosen; None where they were not searched.
    """

    model_config = ConfigDict(strict=False)

    needs: list[str] = Field(default_factory=list)
    remarks: list[str] = Field(default_factory=list)
    choice: Search | None = None

    @property
    def is_oracle(self) -> bool:
        """Whether its parameters were chosen on test data."""
        return self.choice is not None and self.choice.oracle


class GroupResults(MetricValues):
    """A group of metrics of a method on a split (`farther.evaluation.groups`).

    Args:
        parts: Values of parts of the objects or images.
        labels: Further results in words.
    """

    parts: dict[str, dict[str, Number]] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class UserDefinedValues(Stored):
    """The stored values of a user-defined metric of a method, by split."""

    splits: dict[str, Number]


class FromBest(Stored):
    """The difference from the best method of a split in one metric.

    Args:
        best: Name of the best method.
        interval: 95% interval of the difference.
        p: p-value of the difference.
        why_none: Why there is neither interval nor p; "" where there is p.
    """

    best: str
    interval: Interval
    p: float | None
    why_none: str = ""


class SplitResults(Stored):
    """A method on an OOD split.

    Args:
        groups: Results of each group of metrics that applies.
        against_best: Difference from the best method, by metric; {} without replicates.
        ap_u_by_confidence: AP_U of detections ranked by the detector's confidence.
        by_category, by_size, by_supercategory: Outcomes of parts of the unknown objects.
        by_attribute: Attribute of images → value → outcomes of the unknown objects in its images.
        taken_for: Unknown category → known class → number of its misclassified objects that are
            detected as that class, each counted once, by the most confident detection.
        over_iou: Means over IoU thresholds; None where the setting `iou` is above all of them.
        error_budget: Kind of error on unknown objects → the number of errors, and gains; None for
            a classifier.
    """

    groups: dict[str, GroupResults] = Field(default_factory=dict)
    against_best: dict[str, FromBest] = Field(default_factory=dict)
    ap_u_by_confidence: float | None = None
    by_category: dict[str, MetricValues] = Field(default_factory=dict)
    by_size: dict[str, MetricValues] = Field(default_factory=dict)
    by_supercategory: dict[str, MetricValues] = Field(default_factory=dict)
    by_attribute: dict[str, dict[str, MetricValues]] = Field(default_factory=dict)
    taken_for: dict[str, dict[str, int]] = Field(default_factory=dict)
    over_iou: MetricValues | None = None
    error_budget: dict[str, MetricValues] | None = None

    def of_group(self, group: str) -> Mapping[str, Number]:
        """Values and counts of a group; {} where it does not apply."""
        if group not in self.groups:
            return {}
        return self.groups[group].values

    def value(self, metric: Metric) -> Number:
        """The value of a metric; None where it has no value."""
        return self.of_group(metric.group).get(metric.key)

    def interval(self, metric: Metric) -> Interval:
        """The interval of a metric; None where it has no interval."""
        if metric.group not in self.groups:
            return None
        return self.groups[metric.group].intervals.get(metric.key)

    def why_no_interval(self, metric: Metric) -> str:
        """Why a metric has no interval; "" where it has one, or there are no replicates."""
        if metric.group not in self.groups:
            return ""
        return self.groups[metric.group].no_interval.get(metric.key, "")

    def share_images(self, metric: Metric) -> int | None:
        """Number of the images with the units that a share counts; None for other metrics."""
        if metric.group not in self.groups:
            return None
        return self.groups[metric.group].share_images.get(metric.key)


class MeanOverSplits(MetricValues):
    """Means of metrics, by their names, over the splits of a distance."""

    splits: list[str]


class KnownCategory(Stored):
    """The objects of a known category in the ID test split, by outcome under a method.

    See `farther.metrics.open_set.known_outcomes`. Each counted object counts once.

    Args:
        kept_as: Class → number of objects that are detected and kept as that class: the category
            itself where they are correct.
        flagged: Number of objects that are detected and flagged as unknown.
        missed: Number of objects that are missed.
    """

    kept_as: dict[str, int] = Field(default_factory=dict)
    flagged: int = 0
    missed: int = 0


class MethodResults(Stored):
    """A method that applies to the run's detector.

    Args:
        fitted: The method.
        tau: Its threshold τ.
        id_regions, id_regions_kept: Number of regions of the ID split, and the share of them that τ
            keeps.
        splits: Results on each OOD split.
        means: Distance → means over its splits.
        misclassification: How well scores separate wrong from right detections on the ID split.
        costs: Detections on the ID split that are flagged as unknown.
        costs_by_attribute: The same by the values of each attribute of images.
        known_objects: Category → outcomes of its objects in the ID split.
    """

    fitted: FittedMethod
    tau: float
    id_regions: int
    id_regions_kept: float | None
    splits: dict[str, SplitResults]
    means: dict[str, MeanOverSplits]
    misclassification: MetricValues
    costs: MetricValues
    costs_by_attribute: dict[str, dict[str, MetricValues]] = Field(default_factory=dict)
    known_objects: dict[str, KnownCategory] = Field(default_factory=dict)


class DrawnImages(Stored):
    """The bootstrap of a split.

    Args:
        drawn: The units that are drawn: images, or groups of images.
        units: Number of units.
        replicates: Number of replicates.
    """

    drawn: str
    units: int
    replicates: int


class ClassEdge(Stored):
    """An unknown class, an ID class that its objects are taken for, and the number of objects."""

    category: str
    id_class: str
    objects: int


class SimilarClass(Stored):
    """A class, or a predicted class, and its mean similarity to the other of the two.

    Args:
        name: The class.
        similarity: Mean over objects.
        objects: Number of objects.
    """

    name: str
    similarity: float | None
    objects: int


class MethodClasses(Stored):
    """A method's results by the OODness of classes; see `farther.evaluation.classes`.

    Args:
        by_oodness: OODness → images, regions and metrics of separation: ID test regions against
            those of images of that OODness.
        id_up_to: Largest OODness that counts as ID → metrics of separation: ID test regions and
            those of images that count as ID, against the others.
        outcomes: OODness of an object's class → objects of OOD splits, found, misclassified,
            missed.
    """

    by_oodness: dict[str, dict[str, Number]]
    id_up_to: dict[str, dict[str, float | None]]
    outcomes: dict[str, dict[str, int]]


class ClassGraph(Stored):
    """Unknown classes and the ID classes that their objects are taken for.

    Args:
        edges: The most frequent pairs.
        similarity: Mean similarity of class and prediction, by `category` and by `id_class`.
    """

    edges: list[ClassEdge]
    similarity: dict[str, list[SimilarClass]]


class ClassesResults(Stored):
    """Results by the OODness of classes, each map of them by method.

    See `MethodClasses` and `ClassGraph`.
    """

    by_oodness: dict[str, dict[str, dict[str, Number]]]
    id_up_to: dict[str, dict[str, dict[str, float | None]]]
    outcomes: dict[str, dict[str, dict[str, int]]]
    edges: list[ClassEdge]
    similarity: dict[str, list[SimilarClass]]


class Gain(Stored):
    """A metric of a method as a mean over OOD splits, and its gain over the baseline.

    Args:
        value, interval: The mean and its 95% interval.
        gain, gain_interval, p: Difference from the baseline's; None without a baseline.
    """

    value: float
    interval: Interval = None
    gain: float | None = None
    gain_interval: Interval = None
    p: float | None = None


class Gains(Stored):
    """Gains of methods over the baseline.

    Args:
        baseline: Name of the baseline; None without one.
        methods: Method → metric → gain.
    """

    baseline: str | None
    methods: dict[str, dict[str, Gain]]


class Evaluation(DetectorResults):
    """All metrics of a run.

    Args:
        run, benchmark: Names.
        settings: How it was evaluated.
        threshold, threshold_rule: t*, and the rule that chose it.
        detector: Origin of its regions: name, parameters, hash of the checkpoint.
        classifier_type: See `farther.evaluation.classifier_types`; "" where it is not known.
        bootstrap: The bootstrap of each split; {} without replicates.
        tau_images: Hash of the names of the images that τ is taken from, which are resampled, too;
            "" where it stays fixed.
        methods: Results of each method that applies.
        not_applicable: Method → why it does not apply to the detector.
        classes: Results by the OODness of classes; None where no split's images were chosen by
            rules.
        gains: Gains of methods over the detector's own confidence.
    """

    run: str
    benchmark: str
    settings: EvaluationSettings
    threshold: float
    threshold_rule: str | float | None
    detector: dict[str, Any]
    classifier_type: str = ""
    bootstrap: dict[str, DrawnImages]
    tau_images: str = ""
    methods: dict[str, MethodResults]
    not_applicable: dict[str, str]
    classes: ClassesResults | None
    gains: Gains


class DecidedImages(Stored):
    """The images of a split that a self-aware detector accepts or rejects, as they are drawn.

    Args:
        severity, histogram, examples: See `AcceptedImages`.
    """

    severity: int | None
    histogram: list[float]
    examples: list[ExampleImage]


class SelfAwareDrawings(Stored):
    """What is drawn of a run's self-awareness.

    Args:
        detector, reliability, reliability_before, map_by_uncertainty, sweeps, ious: See
            `farther.evaluation.self_awareness`.
        reliabilities: Split → calibrator → reliability diagram.
        images: Split → its images.
    """

    detector: SelfAwareDetector
    reliability: Reliability
    reliability_before: Reliability
    reliabilities: dict[str, dict[str, Reliability]]
    map_by_uncertainty: list[float | None]
    sweeps: dict[str, list[dict[str, float | None]]]
    ious: list[dict[str, float | None]]
    images: dict[str, DecidedImages]

    @classmethod
    def of(cls, results: SelfAwarenessResults) -> SelfAwareDrawings:
        """What is drawn of some results."""
        reliabilities: dict[str, dict[str, Reliability]] = {}
        for split, diagrams in results.reliabilities.items():
            reliabilities[split] = {}
            for calibrator, diagram in diagrams.items():
                reliabilities[split][calibrator] = Reliability(
                    **diagram.model_dump(exclude={"laece"})
                )
        images = {}
        for split, accepted in results.images.items():
            images[split] = DecidedImages(
                severity=accepted.severity,
                histogram=accepted.histogram,
                examples=accepted.examples,
            )
        return cls(
            detector=results.detector,
            reliability=results.reliability,
            reliability_before=results.reliability_before,
            reliabilities=reliabilities,
            map_by_uncertainty=results.map_by_uncertainty,
            sweeps=results.sweeps,
            ious=results.ious,
            images=images,
        )


class WildernessDrawings(Stored):
    """What is drawn of a run's wilderness.

    Args:
        similar: Groups of ID classes that are easily confused.
        diagnosis_recall: Recall at which detections are counted by category and class.
        margins: "known" and "unknown" → share of the detections in each bin of class minus
            background probability; {} without a background column.
    """

    similar: list[list[str]]
    diagnosis_recall: float
    margins: dict[str, list[float]]

    @classmethod
    def of(cls, results: WildernessResults) -> WildernessDrawings:
        """What is drawn of some results."""
        margins = {}
        if results.background is not None:
            margins["known"] = results.background.known.histogram
            margins["unknown"] = results.background.unknown.histogram
        return cls(
            similar=results.errors.similar,
            diagnosis_recall=results.diagnosis_recall,
            margins=margins,
        )


class SourceDrawings(Stored):
    """What is drawn of a source of proposals; see `farther.evaluation.recovery.SourceResults`.

    Args:
        kind, rule: How the source finds proposals.
        curves: Distance → false alarms per ID image, and share of the objects that is still missed.
    """

    kind: str
    rule: str
    curves: dict[str, list[tuple[float, float]]]


class ProposalDrawings(Stored):
    """What is drawn of a run's proposals.

    Args:
        asked_alarms: The rate of false alarms that τ_o is chosen for.
        sources: The sources.
    """

    asked_alarms: float
    sources: dict[str, SourceDrawings]


class RunDescription(Stored):
    """How a run was evaluated, and its curves and histograms: `results/<run>.json`.

    It has no value that is printed: these are in the long table.

    Args:
        benchmark, settings, threshold_rule, detector, classifier_type, bootstrap, tau_images,
            not_applicable: See `Evaluation`.
        fitted: Each method that applies.
        inputs: Split → hashes of its tables; see `SplitCounts`.
        baseline: See `Gains`.
        wilderness, self_awareness: What is drawn of them.
        class_graph: Unknown classes and the ID classes that their objects are taken for; None where
            no split's images were chosen by rules.
        proposals: What is drawn of proposals; None without any.
    """

    benchmark: str
    settings: EvaluationSettings
    threshold_rule: str | float | None
    detector: dict[str, Any]
    classifier_type: str
    bootstrap: dict[str, DrawnImages]
    tau_images: str
    not_applicable: dict[str, str]
    fitted: dict[str, FittedMethod]
    inputs: dict[str, dict[str, str]]
    baseline: str | None
    wilderness: WildernessDrawings
    self_awareness: SelfAwareDrawings
    class_graph: ClassGraph | None
    proposals: ProposalDrawings | None

    @classmethod
    def of(
        cls, evaluation: Evaluation, proposals: ProposalDrawings | None = None
    ) -> RunDescription:
        """The description of an evaluated run."""
        class_graph = None
        if evaluation.classes is not None:
            class_graph = ClassGraph(
                edges=evaluation.classes.edges, similarity=evaluation.classes.similarity
            )
        return cls(
            benchmark=evaluation.benchmark,
            settings=evaluation.settings,
            threshold_rule=evaluation.threshold_rule,
            detector=evaluation.detector,
            classifier_type=evaluation.classifier_type,
            bootstrap=evaluation.bootstrap,
            tau_images=evaluation.tau_images,
            not_applicable=evaluation.not_applicable,
            fitted={name: results.fitted for name, results in evaluation.methods.items()},
            inputs={name: counts.inputs for name, counts in evaluation.splits.items()},
            baseline=evaluation.gains.baseline,
            wilderness=WildernessDrawings.of(evaluation.wilderness),
            self_awareness=SelfAwareDrawings.of(evaluation.self_awareness),
            class_graph=class_graph,
            proposals=proposals,
        )


def write_results(file: Path, results: Stored) -> None:
    """Writes results, with a hash of their content."""
    write_sealed(file, results.model_dump(mode="json"))


def read_results(kind: type[T], file: Path, advice: str) -> T:
    """Reads a file that `write_results` wrote.

    Args:
        kind: The type of the content.
        file: The file.
        advice: The remedy that the error message names.

    Raises:
        DataError: the file is absent, damaged, edited, or has other fields.
    """
    return _validated(kind, read_sealed(file, advice), file, advice)


def read_kept_results(kind: type[T], file: Path, advice: str) -> T:
    """Reads a file of an item that `farther.incremental.keyed.Keyed.is_current` found undamaged.

    Its hash is not computed again, which takes longer than all else.

    Args:
        kind, file, advice: see `read_results`.

    Raises:
        DataError: the file has other fields.
    """
    content = parse_json(file.read_bytes(), file)
    content.pop(SEAL, None)
    return _validated(kind, content, file, advice)


def _validated(kind: type[T], content: Any, file: Path, advice: str) -> T:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        location = error.errors(include_url=False)[0]["loc"]
        field = ".".join(str(part) for part in location) or None
        problem = f"written by another version: {advice}"
        raise DataError(problem, file=file, field=field) from None


def read_description(file: Path) -> RunDescription:
    """The content of `results/<run>.json`.

    Raises:
        DataError: the file is absent, damaged or edited, or of another version.
    """
    return read_results(RunDescription, file, "run `farther repro evaluate`")
