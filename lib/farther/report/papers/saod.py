"""Tables of SAOD (Oksuz et al., 2023): self-aware detectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from farther.report.listing import Listing, percent
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
METHODS = {"keep_95": "TPR@0.95", "pseudo_ood": "pseudo-OOD"}

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
PARTS = {
    "idq": "IDQ ↑ (%)",
    "laece": "LaECE ↓ (%)",
    "lrp": "LRP ↓ (%)",
    "lrp_loc": "LRP_Loc ↓ (%)",
    "lrp_fp": "LRP_FP ↓ (%)",
    "lrp_fn": "LRP_FN ↓ (%)",
}
IN_FULL = {
    "daq": "DAQ ↑ (%)",
    "balanced_accuracy": "BA ↑ (%)",
    "tpr": "TPR ↑ (%)",
    "tnr": "TNR ↑ (%)",
}
IN_FULL |= PARTS | {f"{name}_t": f"T(ID) {title}" for name, title in PARTS.items()}

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


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 2 to 7, A.8 to A.14 and A.16, and Figure A.6 in numbers."""
    found = [(run, run.evaluation.self_awareness) for run in sources.runs if run.evaluation]
    aggregates = "AUROC of 1 − p, aggregated over the detections of an image; top-m: mean of the m most certain ones."
    subsets = "AUROC of image uncertainty, near to far; OOD splits without known objects."
    calibration = "LaECE and LRP, and IDQ, on ID test images, none rejected. LR: linear; HB: histogram; IR: isotonic."
    ablation = "v: confidence thresholds of detections; LR: calibration; u: threshold of images."
    thresholds = "Thresholds chosen on ID validation images and on pseudo-OOD images."
    dummies = "Dummy detections of confidence 0 lower LaECE though nothing improves; LRP rises. ID validation images."
    by_threshold = "LRP needs detections above a threshold. ID validation images, uncalibrated."
    uncertain = f"AUROC of image uncertainty ({AGGREGATE}) by that of detections, with 95% intervals. Σ: of the box."
    sigmoids = (
        f"AUROC ({AGGREGATE}) with 95% intervals, by how the entropy of a sigmoid head is computed."
    )
    combined = f"AUROC ({AGGREGATE}) with 95% intervals. Balanced: 4 H(p) + H(Σ); Norm.: each from 0 to 1 on validation."
    by_aggregate = "AUROC by aggregate, with 95% intervals."
    accuracies = "COCO-style AP of all detections, with 95% intervals; on ID validation and test images, and shifted ones."
    shifted = {f"{name} (%)" for _, aware in found for name in aware.accuracy}
    benchmarks = dict.fromkeys(run.benchmark for run, _ in found)
    in_full = (
        "LRP_Loc: mean of 1 − IoU of true positives; LRP_FP: 1 − precision; LRP_FN: 1 − recall."
    )
    found_by_benchmark = {
        name: [pair for pair in found if pair[0].benchmark == name] for name in benchmarks
    }
    listings = {
        "aggregates": [per_run(aggregates, found, _aggregates)],
        "uncertainties": [
            per_run(
                uncertain,
                found,
                partial(_uncertainties, heads=UNCERTAINTIES, needed=CONFIDENCE),
                list(UNCERTAINTIES.values()),
            )
        ],
        "subsets": [
            per_run(f"{name}: {subsets}", pairs, _subsets)
            for name, pairs in found_by_benchmark.items()
        ],
        "calibration": [per_run(calibration, found, _calibration)],
        "detectors": [
            per_run(
                "T(ID): shifted ID images; Val: ID validation images.",
                found,
                _detectors,
                ON_VALIDATION,
            )
        ],
        "ablation": [per_run(ablation, found, _ablation)],
    }
    numbered = [
        PaperTable(
            saod_printed.TABLES[name].title, TITLES[name], _with_printed(sources, name, ours)
        )
        for name, ours in listings.items()
    ]
    counted = "Objects of each class in the ID validation and in the ID test images, the most frequent first; no crowds."
    objects = []
    for name, pairs in found_by_benchmark.items():
        objects.append(
            Listing.of(f"{sources.benchmarks[name]}: {counted}", _objects(sources, *pairs[0]))
        )
    return [
        *numbered,
        PaperTable("Figure A.6", "Objects by class", objects),
        PaperTable(
            "Figure A.8",
            "Weather, scene and time of day",
            [_attributes(sources, *pairs[0]) for pairs in found_by_benchmark.values()],
        ),
        PaperTable(
            "Table A.8",
            "Average precision",
            [per_run(accuracies, found, _accuracies, ["Val (%)", "ID (%)", *shifted])],
        ),
        PaperTable(
            "Table A.9",
            "Entropy of sigmoid heads",
            [
                per_run(
                    sigmoids,
                    found,
                    partial(_uncertainties, heads=SIGMOIDS, needed=MEAN_OF_SIGMOIDS),
                    list(SIGMOIDS.values()),
                )
            ],
        ),
        PaperTable(
            "Table A.10",
            "Entropies of class and box",
            [per_run(combined, found, _combined, ["AUROC (%)"])],
        ),
        PaperTable(
            "Table A.11",
            "1 − p and |Σ| by aggregate",
            [per_run(by_aggregate, found, _both_aggregates, [f"{how} (%)" for how in AGGREGATES])],
        ),
        PaperTable(
            "Table A.12", "Image thresholds", [per_run(thresholds, found, _image_thresholds)]
        ),
        PaperTable(
            "Table A.13",
            "Dummy detections",
            [per_run(dummies, found, _dummies, ["det/img.", "AP ↑ (%)"])],
        ),
        PaperTable(
            "Table A.14",
            "Confidence thresholds",
            [per_run(by_threshold, found, _by_threshold, ["det/img.", "AP ↑ (%)"])],
        ),
        PaperTable(
            "Table A.16",
            "Self-aware detectors, with the parts of LRP",
            [per_run(in_full, found, partial(values_of, heads=IN_FULL))],
        ),
    ]


def _with_printed(sources: Sources, name: str, ours: list[Listing]) -> list[Listing]:
    """The listings of a table, and after them the printed values; only where a run has values."""
    if not any(ours):
        return ours
    table = saod_printed.TABLES[name]
    printed = sources.printed(
        f"saod_{name}.csv", (*saod_printed.DETECTOR, *table.keys), tuple(table.values)
    )
    rows: list[dict[str, Any]] = []
    for value in printed.iter_rows(named=True):
        row: dict[str, Any] = {
            "Dataset": PRINTED_DATASETS.get(value["id"], value["id"]),
            "Detector": PRINTED_DETECTORS.get(value["detector"], value["detector"]),
        }
        for column, heading in table.keys.items():
            row[heading] = _key(column, value[column])
        for column, heading in table.values.items():
            row[heading] = value[column]
        rows.append(row)
    if name == "calibration":
        rows = _by_metric(rows)
    return [
        *ours,
        Listing.of(
            "As printed. Beside a run's values: page Published, where it has a counterpart.", rows
        ),
    ]


def _by_metric(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of calibrators as Table 5 has them: one row per detector and metric, one column per calibrator."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        for metric in ("LaECE", "LRP"):
            place = (row["Dataset"], row["Detector"], metric)
            cells = found.setdefault(
                place, dict(zip(("Dataset", "Detector", "Metric"), place, strict=True))
            )
            cells[f"{row['Calibrator']} (%)"] = row[f"{metric} (%)"]
    return list(found.values())


def _key(column: str, value: str) -> str:
    """A key of a printed row as the tables of runs have it."""
    if column == "calibrator":
        return CALIBRATORS.get(value, value)
    if column == "image_threshold":
        return METHODS.get(value, value)
    return CONFIDENCE_THRESHOLDS.get(value, value)


def values_of(
    run: Run, aware: SelfAwarenessResults, heads: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Values of a run by their headings."""
    yield {title: aware.values.get(name) for name, title in heads.items()}


def _aggregates(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    yield {
        f"{how} (%)": aware.aggregates[how]["all"] for how in AGGREGATES if how in aware.aggregates
    }


def _detectors(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    """Table 6; its last columns have intervals."""
    of = aware.accuracy.get(run.evaluation.settings.calibration_split) if run.evaluation else None
    for row in values_of(run, aware, DETECTORS):
        yield {
            **row,
            **{
                head: _within(of, name)
                for name, head in zip(("lrp", "ap"), ON_VALIDATION, strict=True)
            },
        }


def _within(of: MetricValues | None, name: str) -> str:
    """A value in per cent with its interval; "–" where there is none."""
    return percent(None) if of is None else percent(of.values.get(name), of.intervals.get(name))


def _uncertainties(
    run: Run, aware: SelfAwarenessResults, heads: Mapping[str, str], needed: str
) -> Iterator[dict[str, Any]]:
    """A row where the run has the uncertainty that the table is about."""
    if needed in aware.uncertainties:
        yield {
            head: _within(aware.uncertainties.get(name), AGGREGATE) for name, head in heads.items()
        }


def _combined(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for name, marks in COMBINED.items() if BOTH in aware.uncertainties else ():
        columns = dict(zip(("H(p)", "H(Σ)", "Balanced", "Norm."), marks, strict=True))
        yield {**columns, "AUROC (%)": _within(aware.uncertainties[name], AGGREGATE)}


def _both_aggregates(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for name in (CONFIDENCE, DETERMINANT):
        if of := aware.uncertainties.get(name):
            title = UNCERTAINTIES[name].removesuffix(" (%)")
            yield {"u": title, **{f"{how} (%)": _within(of, how) for how in AGGREGATES}}


def _accuracies(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    if not (run.evaluation and aware.accuracy):
        return
    settings = run.evaluation.settings
    heads = {settings.calibration_split: "Val (%)", settings.id_split: "ID (%)"}
    names = dict.fromkeys((*heads, *aware.accuracy))
    yield {heads.get(name, f"{name} (%)"): _within(aware.accuracy[name], "ap") for name in names}


def _subsets(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    nearest_first = sorted(run.splits, key=lambda split: DISTANCES.index(split.distance))
    subsets = {
        f"{split.title}, {run.images(split.name):,} images (%)": aware.splits[split.name]["auroc"]
        for split in nearest_first
        if split.name in aware.splits
    }
    yield {**subsets, "all OOD (%)": aware.splits["all"]["auroc"]}


def _calibration(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    kinds = [
        kind
        for kind in dict.fromkeys((*CALIBRATORS, *aware.calibrated))
        if kind in aware.calibrated
    ]
    for name, title in (("laece", "LaECE"), ("lrp", "LRP"), ("idq", "IDQ")):
        values = {
            f"{CALIBRATORS.get(kind, kind)} (%)": aware.calibrated[kind][name] for kind in kinds
        }
        yield {"Metric": title, **values}


def _ablation(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for row in aware.ablation:
        yield {
            "v": CONFIDENCE_THRESHOLDS.get(row.confidence_threshold, row.confidence_threshold),
            "LR": "✓" if row.calibrator == "linear" else row.calibrator or "✗",
            "u": METHODS.get(row.image_threshold, row.image_threshold),
            **{title: row.metrics.get(name) for name, title in ABLATION.items()},
        }


def _objects(sources: Sources, run: Run, aware: SelfAwarenessResults) -> list[dict[str, Any]]:
    """Number of objects of each ID class in both ID splits; nothing where their tables are not on this machine."""
    if run.evaluation is None:
        return []
    settings = run.evaluation.settings
    splits = {"ID validation": settings.calibration_split, "ID test": settings.id_split}
    rows: dict[str, dict[str, Any]] = {}
    for name in aware.per_class:
        rows[name] = {"Class": name, **dict.fromkeys(splits, 0)}
    for heading, split in splits.items():
        file = RunFiles(run.name, run.benchmark, sources.artifacts).objects(split)
        if not is_file(file):
            return []
        objects = Objects.read(file).frame.filter(~pl.col("is_crowd"))
        for category, count in objects.group_by("category").len().iter_rows():
            if category in rows:
                rows[category][heading] = count
    return sorted(rows.values(), key=lambda row: -row["ID test"])


def _attributes(sources: Sources, run: Run, aware: SelfAwarenessResults) -> Listing:
    """Share of the ID test images with each value of each attribute; empty where their dataset has none."""
    caption = f"{sources.benchmarks[run.benchmark]}: share of the ID test images."
    rows: list[dict[str, Any]] = []
    if run.evaluation is None:
        return Listing.of(caption, rows)
    settings = curation.benchmark(run.benchmark, sources.params["benchmarks"][run.benchmark])
    id_split = run.evaluation.settings.id_split
    dataset, subset = settings.id_sources[id_split]
    file = inside(sources.artifacts / "tables", f"{dataset}/{subset}") / ATTRIBUTES
    images = RunFiles(run.name, run.benchmark, sources.artifacts).images(id_split)
    if not is_file(file) or not is_file(images):
        return Listing.of(caption, rows)
    test_images = Images.read(images)
    attributes = ImageAttributes.read(file).frame
    of_test = attributes.filter(pl.col("image_id").is_in(test_images.image_id.tolist()))
    counts = of_test.group_by("attribute", "value").agg(images=pl.len())
    for row in counts.sort(
        "attribute", "images", "value", descending=[False, True, False]
    ).to_dicts():
        share = percent(row["images"] / len(test_images))
        rows.append(
            {
                "Attribute": row["attribute"],
                "Value": row["value"],
                "Images": row["images"],
                "Share (%)": share,
            }
        )
    return Listing.of(caption, rows, ["Images", "Share (%)"])


def _image_thresholds(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    for kind, title in METHODS.items():
        if values := aware.image_thresholds.get(kind):
            shares = {
                "BA (%)": values["balanced_accuracy"],
                "TPR (%)": values["tpr"],
                "TNR (%)": values["tnr"],
            }
            yield {"Method": title, **shares}


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
    low, high = row["ap_low"], row["ap_high"]
    return percent(row["ap"], None if low is None or high is None else (low, high))


PAPER = Paper(
    "saod",
    "Self-aware object detectors",
    "Oksuz, Joy and Dokania, 2023: Towards Building Self-Aware Object Detectors via Reliable Uncertainty "
    "Quantification and Calibration. arXiv:2307.00934",
    tables,
    {
        "Table 1": "the splits are those of params.yaml: page Splits",
        "Table A.8, columns T(Val)": "shown where the benchmark has shifted_val: shifted validation images",
        "Table A.15": "compares trainings: a run per training shows the same in Table 6",
        "Figures 2, 4, A.11 and A.13 to A.16": "curves and diagrams: page Self-awareness, and Tables A.13 and A.14",
        "Figure 5": "Tables A.13 and A.14 have its values",
        "Figure A.8": "shown for datasets that say weather, scene and time of day of an image, as BDD100K does",
        "Figures A.9 and A.17 to A.20": "examples of images: page Self-awareness",
        "Figures 1, 3, A.7, A.10 and A.12": "drawings that explain",
    },
)
