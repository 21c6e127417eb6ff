"""Tables of SAOD (Oksuz et al., 2023): self-aware detectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from farther import curation
from farther.evaluation.files import RunFiles
from farther.evaluation.image_uncertainties import (
    AGGREGATE,
    BALANCED,
    BOTH,
    BOX_ENTROPY,
    CONFIDENCE,
    DETERMINANT,
    ENTROPY,
    MEAN_OF_SIGMOIDS,
    NORMALISED,
)
from farther.evaluation.results import MetricValues, SelfAwarenessResults
from farther.evaluation.self_aware_run import ALL_OOD
from farther.report.listing import ABSENT, Listing, percent
from farther.report.papers import saod_printed
from farther.report.papers.table import Paper, PaperTable, Sources, per_run
from farther.report.results import DISTANCES, IMAGES, Run
from farther.tables import ImageAttributes, Images, Objects
from farther.tables.files import inside, is_file
from farther.tables.stored import ATTRIBUTES

#: Calibrators as the paper abbreviates them, in its order, then those it does not have.
CALIBRATORS = {"none": "uncalibrated", "linear": "LR", "histogram": "HB", "isotonic": "IR"}

#: Aggregates in the order of Table 2.
AGGREGATES = ("sum", "mean", "top-5", "top-3", "top-2", "min")

#: Image thresholds as in Table A.12.
IMAGE_THRESHOLDS = {"keep_95": "TPR@0.95", "pseudo_ood": "pseudo-OOD"}

#: Confidence thresholds of detections as in Table 7.
CONFIDENCE_THRESHOLDS = {"lrp_optimal": "LRP-optimal", "half": "0.5"}

#: Columns of Table 6.
DETECTORS = {
    "daq": "DAQ ↑ (%)",
    "balanced_accuracy": "BA ↑ (%)",
    "idq": "IDQ ↑ (%)",
    "laece": "LaECE ↓ (%)",
    "lrp": "LRP ↓ (%)",
    "idq_t": "T(ID) IDQ ↑ (%)",
    "laece_t": "T(ID) LaECE ↓ (%)",
    "lrp_t": "T(ID) LRP ↓ (%)",
}

#: Its last columns, on validation images.
ON_VALIDATION = ["Val LRP ↓ (%)", "Val AP ↑ (%)"]

#: Columns of Table A.16 on ID images; the same follow on shifted ones.
LRP_PARTS = {
    "idq": "IDQ ↑ (%)",
    "laece": "LaECE ↓ (%)",
    "lrp": "LRP ↓ (%)",
    "lrp_loc": "LRP_Loc ↓ (%)",
    "lrp_fp": "LRP_FP ↓ (%)",
    "lrp_fn": "LRP_FN ↓ (%)",
}
DETECTORS_IN_FULL = {
    "daq": "DAQ ↑ (%)",
    "balanced_accuracy": "BA ↑ (%)",
    "tpr": "TPR ↑ (%)",
    "tnr": "TNR ↑ (%)",
}
DETECTORS_IN_FULL |= LRP_PARTS
DETECTORS_IN_FULL |= {f"{name}_t": f"T(ID) {title}" for name, title in LRP_PARTS.items()}

#: Uncertainties of detections in Table 3, and of sigmoid heads in Table A.9.
UNCERTAINTIES = {
    ENTROPY: "H(p) (%)",
    "Dempster–Shafer": "DS (%)",
    CONFIDENCE: "1 − p (%)",
    DETERMINANT: "|Σ| (%)",
    "box trace": "tr(Σ) (%)",
    BOX_ENTROPY: "H(Σ) (%)",
}
SIGMOIDS = {
    MEAN_OF_SIGMOIDS: "average (%)",
    "entropy, largest sigmoid": "max class (%)",
    ENTROPY: "categorical (%)",
}

#: Rows of Table A.10: what is combined → check marks for H(p), H(Σ), "Balanced" and "Norm.".
COMBINED = {
    ENTROPY: "✓✗✗✗",
    BOX_ENTROPY: "✗✓✗✗",
    BOTH: "✓✓✗✗",
    BALANCED: "✓✓✓✗",
    NORMALISED: "✓✓✗✓",
}

#: Titles of Tables 2 to 7.
TITLES = {
    "aggregates": "Image uncertainty by aggregate",
    "uncertainties": "Image uncertainty by uncertainty of detections",
    "subsets": "Image uncertainty by subset of the OOD images",
    "calibration": "Calibration",
    "detectors": "Self-aware detectors",
    "ablation": "What each part contributes",
}

#: Names of the printed tables as the paper has them.
PRINTED_DETECTORS = {
    "faster_rcnn": "F-RCNN",
    "rs_rcnn": "RS-RCNN",
    "atss": "ATSS",
    "deformable_detr": "D-DETR",
    "nll_rcnn": "NLL-RCNN",
    "es_rcnn": "ES-RCNN",
}
PRINTED_DATASETS = {"coco": "SAOD-Gen", "nuimages": "SAOD-AV"}

#: Columns of Table 7.
ABLATION = {
    "daq": "DAQ ↑ (%)",
    "balanced_accuracy": "BA ↑ (%)",
    "laece": "LaECE ↓ (%)",
    "lrp": "LRP ↓ (%)",
    "laece_t": "LaECE_T ↓ (%)",
    "lrp_t": "LRP_T ↓ (%)",
}


#: A run and its self-awareness.
AwareRun = tuple[Run, SelfAwarenessResults]


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 2 to 7, A.8 to A.14 and A.16, and Figures A.6 and A.8 in numbers."""
    runs: list[AwareRun] = []
    for run in sources.runs:
        if run.evaluation:
            runs.append((run, run.evaluation.self_awareness))
    runs_by_benchmark: dict[str, list[AwareRun]] = {}
    for run, aware in runs:
        runs_by_benchmark.setdefault(run.benchmark, []).append((run, aware))
    return [
        *_numbered_tables(sources, runs, runs_by_benchmark),
        _objects_table(sources, runs_by_benchmark),
        _attributes_table(sources, runs_by_benchmark),
        *_appendix_tables(runs),
    ]


def _numbered_tables(
    sources: Sources,
    runs: Sequence[AwareRun],
    runs_by_benchmark: Mapping[str, Sequence[AwareRun]],
) -> list[PaperTable]:
    """Tables 2 to 7, each with the printed values."""
    listings = {
        "aggregates": [
            per_run(
                "AUROC of 1 − p, aggregated over the detections of an image; top-m: mean of the m "
                "most certain ones.",
                runs,
                _aggregates,
            )
        ],
        "uncertainties": [
            per_run(
                f"AUROC of image uncertainty ({AGGREGATE}) by that of detections, with 95% "
                "intervals. Σ: of the box.",
                runs,
                partial(_uncertainties, heads=UNCERTAINTIES, needed=CONFIDENCE),
                list(UNCERTAINTIES.values()),
            )
        ],
        "subsets": [
            per_run(
                f"{benchmark}: AUROC of image uncertainty, near to far; OOD splits without known "
                "objects.",
                runs_of_benchmark,
                _subsets,
            )
            for benchmark, runs_of_benchmark in runs_by_benchmark.items()
        ],
        "calibration": [
            per_run(
                "LaECE and LRP, and IDQ, on ID test images, none rejected. LR: linear; HB: "
                "histogram; IR: isotonic.",
                runs,
                _calibration,
            )
        ],
        "detectors": [
            per_run(
                "T(ID): shifted ID images; Val: ID validation images.",
                runs,
                _detectors,
                ON_VALIDATION,
            )
        ],
        "ablation": [
            per_run(
                "v: confidence thresholds of detections; LR: calibration; u: threshold of images.",
                runs,
                _ablation,
            )
        ],
    }
    numbered = []
    for name, listings_of_runs in listings.items():
        number = saod_printed.TABLES[name].title
        with_printed = _with_printed(sources, name, listings_of_runs)
        numbered.append(PaperTable(number, TITLES[name], with_printed))
    return numbered


def _objects_table(
    sources: Sources, runs_by_benchmark: Mapping[str, Sequence[AwareRun]]
) -> PaperTable:
    """Figure A.6: the objects of each benchmark, as its first run has them."""
    listings = []
    for benchmark, runs in runs_by_benchmark.items():
        run, aware = runs[0]
        caption = (
            f"{sources.benchmarks[benchmark]}: Objects of each class in the ID validation and in "
            "the ID test images, the most frequent first; no crowds."
        )
        listings.append(Listing.from_rows(caption, _objects(sources, run, aware)))
    return PaperTable("Figure A.6", "Objects by class", listings)


def _attributes_table(
    sources: Sources, runs_by_benchmark: Mapping[str, Sequence[AwareRun]]
) -> PaperTable:
    """Figure A.8: the images of each benchmark, as its first run has them."""
    listings = []
    for runs in runs_by_benchmark.values():
        run, _ = runs[0]
        listings.append(_attributes(sources, run))
    return PaperTable("Figure A.8", "Weather, scene and time of day", listings)


def _appendix_tables(runs: Sequence[AwareRun]) -> list[PaperTable]:
    """Tables A.8 to A.14 and A.16."""
    shifted: set[str] = set()
    for _, aware in runs:
        shifted.update(f"{split} (%)" for split in aware.accuracy)
    return [
        PaperTable(
            "Table A.8",
            "Average precision",
            [
                per_run(
                    "COCO-style AP of all detections, with 95% intervals; on ID validation and "
                    "test images, and shifted ones.",
                    runs,
                    _accuracies,
                    ["Val (%)", "ID (%)", *shifted],
                )
            ],
        ),
        PaperTable(
            "Table A.9",
            "Entropy of sigmoid heads",
            [
                per_run(
                    f"AUROC ({AGGREGATE}) with 95% intervals, by how the entropy of a sigmoid head "
                    "is computed.",
                    runs,
                    partial(_uncertainties, heads=SIGMOIDS, needed=MEAN_OF_SIGMOIDS),
                    list(SIGMOIDS.values()),
                )
            ],
        ),
        PaperTable(
            "Table A.10",
            "Entropies of class and box",
            [
                per_run(
                    f"AUROC ({AGGREGATE}) with 95% intervals. Balanced: 4 H(p) + H(Σ); Norm.: each "
                    "from 0 to 1 on validation.",
                    runs,
                    _combined,
                    ["AUROC (%)"],
                )
            ],
        ),
        PaperTable(
            "Table A.11",
            "1 − p and |Σ| by aggregate",
            [
                per_run(
                    "AUROC by aggregate, with 95% intervals.",
                    runs,
                    _both_aggregates,
                    [f"{aggregate} (%)" for aggregate in AGGREGATES],
                )
            ],
        ),
        PaperTable(
            "Table A.12",
            "Image thresholds",
            [
                per_run(
                    "Thresholds chosen on ID validation images and on pseudo-OOD images.",
                    runs,
                    _image_thresholds,
                )
            ],
        ),
        PaperTable(
            "Table A.13",
            "Dummy detections",
            [
                per_run(
                    "Dummy detections of confidence 0 lower LaECE though nothing improves; LRP "
                    "rises. ID validation images.",
                    runs,
                    _dummies,
                    ["det/img.", "AP ↑ (%)"],
                )
            ],
        ),
        PaperTable(
            "Table A.14",
            "Confidence thresholds",
            [
                per_run(
                    "LRP needs detections above a threshold. ID validation images, uncalibrated.",
                    runs,
                    _by_threshold,
                    ["det/img.", "AP ↑ (%)"],
                )
            ],
        ),
        PaperTable(
            "Table A.16",
            "Self-aware detectors, with the parts of LRP",
            [
                per_run(
                    "LRP_Loc: mean of 1 − IoU of true positives; LRP_FP: 1 − precision; LRP_FN: "
                    "1 − recall.",
                    runs,
                    partial(values_of, heads=DETECTORS_IN_FULL),
                )
            ],
        ),
    ]


def _with_printed(sources: Sources, name: str, listings_of_runs: list[Listing]) -> list[Listing]:
    """The listings of a table, then one of the printed values; only where a run has values."""
    if not any(listings_of_runs):
        return listings_of_runs
    table = saod_printed.TABLES[name]
    printed = sources.printed(
        f"saod_{name}.csv", (*saod_printed.DETECTOR, *table.keys), tuple(table.values)
    )
    rows: list[dict[str, Any]] = []
    for printed_row in printed.iter_rows(named=True):
        id_dataset = printed_row["id"]
        detector = printed_row["detector"]
        row: dict[str, Any] = {
            "Dataset": PRINTED_DATASETS.get(id_dataset, id_dataset),
            "Detector": PRINTED_DETECTORS.get(detector, detector),
        }
        for column, heading in table.keys.items():
            row[heading] = _key(column, printed_row[column])
        for column, heading in table.values.items():
            row[heading] = printed_row[column]
        rows.append(row)
    if name == "calibration":
        rows = _by_metric(rows)
    caption = "As printed. Beside a run's values: page Papers, where it has a counterpart."
    return [*listings_of_runs, Listing.from_rows(caption, rows)]


def _by_metric(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of calibrators in the shape of Table 5.

    It has one row per detector and metric, and one column per calibrator.
    """
    cells_by_key: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        for metric in ("LaECE", "LRP"):
            keys = {"Dataset": row["Dataset"], "Detector": row["Detector"], "Metric": metric}
            cells = cells_by_key.setdefault((row["Dataset"], row["Detector"], metric), keys)
            cells[f"{row['Calibrator']} (%)"] = row[f"{metric} (%)"]
    return list(cells_by_key.values())


def _key(column: str, value: str) -> str:
    """A key of a printed row as the tables of runs have it."""
    if column == "calibrator":
        return CALIBRATORS.get(value, value)
    if column == "image_threshold":
        return IMAGE_THRESHOLDS.get(value, value)
    return CONFIDENCE_THRESHOLDS.get(value, value)


def values_of(
    run: Run, aware: SelfAwarenessResults, heads: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Values of a run by their headings."""
    yield {title: aware.values.get(name) for name, title in heads.items()}


def _aggregates(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    cells = {}
    for aggregate in AGGREGATES:
        if aggregate in aware.aggregates:
            cells[f"{aggregate} (%)"] = aware.aggregates[aggregate][ALL_OOD]
    yield cells


def _detectors(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    """Table 6; its last columns have intervals."""
    accuracy = None
    if run.evaluation:
        accuracy = aware.accuracy.get(run.evaluation.settings.calibration_split)
    val_lrp, val_ap = ON_VALIDATION
    for row in values_of(run, aware, DETECTORS):
        row[val_lrp] = _with_interval(accuracy, "lrp")
        row[val_ap] = _with_interval(accuracy, "ap")
        yield row


def _with_interval(metrics: MetricValues | None, name: str) -> str:
    """A value in per cent with its interval; "—" where there is none."""
    if metrics is None:
        return ABSENT
    return percent(metrics.values.get(name), metrics.intervals.get(name))


def _uncertainties(
    run: Run, aware: SelfAwarenessResults, heads: Mapping[str, str], needed: str
) -> Iterator[dict[str, Any]]:
    """A row where the run has the uncertainty that the table is about."""
    if needed not in aware.uncertainties:
        return
    cells = {}
    for name, heading in heads.items():
        cells[heading] = _with_interval(aware.uncertainties.get(name), AGGREGATE)
    yield cells


def _combined(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    if BOTH not in aware.uncertainties:
        return
    for name, marks in COMBINED.items():
        row = dict(zip(("H(p)", "H(Σ)", "Balanced", "Norm."), marks, strict=True))
        row["AUROC (%)"] = _with_interval(aware.uncertainties[name], AGGREGATE)
        yield row


def _both_aggregates(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for name in (CONFIDENCE, DETERMINANT):
        if name not in aware.uncertainties:
            continue
        row = {"u": UNCERTAINTIES[name].removesuffix(" (%)")}
        for aggregate in AGGREGATES:
            row[f"{aggregate} (%)"] = _with_interval(aware.uncertainties[name], aggregate)
        yield row


def _accuracies(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    if run.evaluation is None or not aware.accuracy:
        return
    settings = run.evaluation.settings
    headings = {settings.calibration_split: "Val (%)", settings.id_split: "ID (%)"}
    row = {}
    for split in dict.fromkeys((*headings, *aware.accuracy)):
        heading = headings.get(split, f"{split} (%)")
        row[heading] = _with_interval(aware.accuracy[split], "ap")
    yield row


def _subsets(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    row: dict[str, float | None] = {}
    for distance in DISTANCES:
        for split in run.splits:
            if split.distance == distance and split.name in aware.splits:
                heading = f"{split.title}, {run.images(split.name):,} images (%)"
                row[heading] = aware.splits[split.name]["auroc"]
    row["all OOD (%)"] = aware.splits[ALL_OOD]["auroc"]
    yield row


def _calibration(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    calibrators = []
    for calibrator in dict.fromkeys((*CALIBRATORS, *aware.calibrated)):
        if calibrator in aware.calibrated:
            calibrators.append(calibrator)
    for metric, title in (("laece", "LaECE"), ("lrp", "LRP"), ("idq", "IDQ")):
        row: dict[str, Any] = {"Metric": title}
        for calibrator in calibrators:
            heading = f"{CALIBRATORS.get(calibrator, calibrator)} (%)"
            row[heading] = aware.calibrated[calibrator][metric]
        yield row


def _ablation(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for step in aware.ablation:
        calibrator = step.calibrator or "✗"
        if calibrator == "linear":
            calibrator = "✓"
        row: dict[str, Any] = {
            "v": CONFIDENCE_THRESHOLDS.get(step.confidence_threshold, step.confidence_threshold),
            "LR": calibrator,
            "u": IMAGE_THRESHOLDS.get(step.image_threshold, step.image_threshold),
        }
        for name, title in ABLATION.items():
            row[title] = step.metrics.get(name)
        yield row


def _objects(sources: Sources, run: Run, aware: SelfAwarenessResults) -> list[dict[str, Any]]:
    """Number of objects of each ID class in both ID splits.

    Empty where their tables are not on this machine.
    """
    if run.evaluation is None:
        return []
    settings = run.evaluation.settings
    splits = {"ID validation": settings.calibration_split, "ID test": settings.id_split}
    row_by_class: dict[str, dict[str, Any]] = {}
    for name in aware.per_class:
        row_by_class[name] = {"Class": name, **dict.fromkeys(splits, 0)}
    for heading, split in splits.items():
        file = RunFiles(run.name, run.benchmark, sources.artifacts).objects(split)
        if not is_file(file):
            return []
        objects = Objects.read(file).frame.filter(~pl.col("is_crowd"))
        for category, count in objects.group_by("category").len().iter_rows():
            if category in row_by_class:
                row_by_class[category][heading] = count
    return sorted(row_by_class.values(), key=_test_objects, reverse=True)


def _test_objects(row: Mapping[str, Any]) -> int:
    return int(row["ID test"])


def _attributes(sources: Sources, run: Run) -> Listing:
    """Share of the ID test images with each value of each attribute.

    Empty where their dataset has no attributes, or is not on this machine.
    """
    caption = f"{sources.benchmarks[run.benchmark]}: share of the ID test images."
    if run.evaluation is None:
        return Listing.from_rows(caption, [])
    id_split = run.evaluation.settings.id_split
    benchmark = curation.benchmark(run.benchmark, sources.params["benchmarks"][run.benchmark])
    dataset, subset = benchmark.id_sources[id_split]
    attributes_file = inside(sources.artifacts / "tables", f"{dataset}/{subset}") / ATTRIBUTES
    images_file = RunFiles(run.name, run.benchmark, sources.artifacts).images(id_split)
    if not is_file(attributes_file) or not is_file(images_file):
        return Listing.from_rows(caption, [])

    test_images = Images.read(images_file)
    attributes = ImageAttributes.read(attributes_file).frame
    is_test_image = pl.col("image_id").is_in(test_images.image_id.tolist())
    counts = (
        attributes.filter(is_test_image)
        .group_by("attribute", "value")
        .agg(images=pl.len())
        .sort("attribute", "images", "value", descending=[False, True, False])
    )
    rows = []
    for count in counts.iter_rows(named=True):
        rows.append(
            {
                "Attribute": count["attribute"],
                "Value": count["value"],
                "Images": count["images"],
                "Share (%)": percent(count["images"] / len(test_images)),
            }
        )
    return Listing.from_rows(caption, rows, ["Images", "Share (%)"])


def _image_thresholds(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for name, title in IMAGE_THRESHOLDS.items():
        values = aware.image_thresholds.get(name)
        if values:
            yield {
                "Method": title,
                "BA (%)": values["balanced_accuracy"],
                "TPR (%)": values["tpr"],
                "TNR (%)": values["tnr"],
            }


def _dummies(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for row in aware.top_k:
        if row["k"] is None:
            dummies = "none, above LRP-opt. thresholds"
        else:
            dummies = f"up to {row['k']}"
        yield {"Dummy det.": dummies, IMAGES: run.image_counts(), **_quality(row)}


def _by_threshold(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for row in aware.by_threshold:
        if row["threshold"] is None:
            threshold = "LRP-opt."
        elif row["threshold"] == 0:
            threshold = "None"
        else:
            threshold = f"{row['threshold']:.2f}"
        yield {"Threshold": threshold, IMAGES: run.image_counts(), **_quality(row)}


def _quality(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns that both tables have."""
    return {
        "det/img.": f"{row['detections_per_image']:.1f}",
        "LaECE ↓ (%)": row["laece"],
        "LRP ↓ (%)": row["lrp"],
        "AP ↑ (%)": _ap(row),
    }


def _ap(row: Mapping[str, float | None]) -> str:
    low = row["ap_low"]
    high = row["ap_high"]
    if low is None or high is None:
        return percent(row["ap"])
    return percent(row["ap"], (low, high))


PAPER = Paper(
    "saod",
    "Self-aware object detectors",
    "Oksuz, Joy and Dokania, 2023: Towards Building Self-Aware Object Detectors via Reliable "
    "Uncertainty Quantification and Calibration. arXiv:2307.00934",
    tables,
    {
        "Table 1": "the splits are those of params.yaml: page Data",
        "Table A.8, columns T(Val)": "shown where the benchmark has shifted_val: shifted "
        "validation images",
        "Table A.15": "compares trainings: a run per training shows the same in Table 6",
        "Figures 2, 4, A.11 and A.13 to A.16": "curves and diagrams: the pages of detectors, and "
        "Tables A.13 and A.14",
        "Figure 5": "Tables A.13 and A.14 have its values",
        "Figure A.8": "shown for datasets that say weather, scene and time of day of an image, as "
        "BDD100K does",
        "Figures A.9 and A.17 to A.20": "examples of images: the pages of detectors",
        "Figures 1, 3, A.7, A.10 and A.12": "drawings that explain",
    },
)
