"""Effect of images without known objects: impact, causes of errors, and the background class."""

import csv

import numpy as np
import pytest
from tests.evaluation.evaluated_runs import (
    FIRST,
    NOWHERE,
    SECOND,
    evaluate,
    evaluated,
    write_scores,
    write_split,
)

from farther.evaluation import files as run
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.wilderness import WildImages
from farther.metrics import weighting
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_diagnosis
from farther.metrics.statistics import bootstrap
from farther.tables import Objects, Regions


def test_wilderness_has_intervals_where_they_are_asked_for(files):
    settings = EvaluationSettings(replicates=0, recomputed_replicates=100)
    found = evaluated(files, ["msp"], ["far"], settings).wilderness
    interval = found.intervals["map_closed"]
    assert interval is None or interval[0] <= found.map_closed <= interval[1]
    assert evaluate(files).wilderness.intervals == {}


def test_the_protocol_of_the_evaluation_is_that_of_wilderness(files, objects, regions):
    found = regions(
        ("i1", NOWHERE, 0.9), ("i1", FIRST, 0.8), ("i1", SECOND, 0.7), classes=("cat", "dog")
    )
    write_split(files, "test", objects(("i1", FIRST, "cat"), ("i1", SECOND, "cat")), found)
    write_split(files, "far", objects(("o1", FIRST, "fox")), regions(("o1", FIRST, 0.75)))
    impact = {}
    for protocol in ("paper", "published-code"):
        settings = EvaluationSettings(replicates=0, recomputed_replicates=100, protocol=protocol)
        wild = WildImages(RunInputs(files, run.Roles(["far"]), settings)).metrics()
        impact[protocol] = wild.at_recall["0.5"].impact_by_precision[-1]
        assert wild.intervals["average_impact_by_precision@0.5"] is None  # of a single image
    # Precision 1/2 at the recall, and 2/3 further on; with the wild one 1/2 and 2/4.
    assert impact == {"paper": 0, "published-code": pytest.approx((2 / 3) / (1 / 2) - 1)}


def with_background(table: Regions) -> Regions:
    """The regions with a background column, whose probability is 0.2."""
    odds = 0.25 * np.exp(table.logits).sum(axis=1)
    return Regions(
        image_id=table.image_id,
        region_id=table.region_id,
        box=table.box,
        score=table.score,
        label=table.label,
        logits=np.column_stack([table.logits, np.log(odds)]),
        classes=(*table.classes, "nothing"),
        background_index=2,
    )


def test_errors_and_background_have_intervals(files, objects, regions):
    known = objects(("a", FIRST, "cat"))
    id_regions = regions(("a", FIRST, 0.9, "cat"))
    for split in ("val", "test"):
        write_split(files, split, known, with_background(id_regions))
    unknown = objects(("o1", FIRST, "fox"), ("o2", FIRST, "elk"))
    ood_regions = regions(("o1", FIRST, 0.95, "dog"), ("o2", SECOND, 0.1, "dog"))
    write_split(files, "far", unknown, with_background(ood_regions))
    write_scores(files, "msp", "test", id_regions, [0.9])
    write_scores(files, "msp", "far", ood_regions, [0.9, 0.1])

    results = evaluated(files, ["msp"], ["far"], EvaluationSettings(replicates=100)).wilderness
    background = results.background
    # Background: 0.2 of all, so that the cat has 0.72 and the fox 0.76; the other dog lies on
    # nothing.
    assert background.values["rejected_known"] == 0
    assert background.values["rejected_unknown"] == 0
    assert background.known.classes["cat"]["mean"] == pytest.approx(0.72 - 0.2, abs=1e-6)
    assert background.unknown.classes["dog"]["mean"] == pytest.approx(0.76 - 0.2, abs=1e-6)
    assert background.unknown.classes["dog"]["detections"] == 1
    assert background.intervals["rejected_known"] == pytest.approx((0, 0.975))  # of one image
    for cause, intervals in results.errors.intervals.items():
        for share, interval in zip(results.errors.shares[cause], intervals, strict=True):
            assert interval is None or interval[0] <= share <= interval[1]


def with_prefix(table, prefix: str):
    """A table whose images have a prefix to their names."""
    return table.with_columns(image_id=[f"{prefix}{name}" for name in table.image_id])


def test_errors_are_those_of_one_table_of_closed_and_wild_images(files, world):
    objects, regions = world(0, images=12)
    objects = with_prefix(objects, "i")
    regions = with_prefix(regions, "i")
    wild_objects, wild_regions = world(1, images=12)
    foxes = wild_objects.with_columns(category=["fox"] * len(wild_objects))
    for split in ("val", "test"):
        write_split(files, split, objects, regions)
    write_split(files, "far", foxes, wild_regions)
    inputs = RunInputs(files, run.Roles(("far",)), EvaluationSettings(replicates=100))
    results = WildImages(inputs).errors()

    named_regions = with_prefix(wild_regions, "far/")
    all_objects = Objects.concatenate([objects, with_prefix(foxes, "far/")])
    all_regions = Regions.concatenate([regions, named_regions])
    wild_images = set(named_regions.image_id)
    settings = error_diagnosis.Diagnosis(wild_images=wild_images)
    any_confidence = dict.fromkeys(all_regions.classes, -np.inf)
    causes = error_diagnosis.diagnose(all_objects, all_regions, any_confidence, settings)
    numbers = np.array([error_diagnosis.CAUSES.index(cause) for cause in causes])

    known = ClosedSet.of(all_objects, all_regions, max_detections=len(all_regions))
    matched = known.match([0.5])
    cause = numbers[known.detections.row]
    recalls = results.recalls
    counts, classes = error_diagnosis.counts_at_recalls(matched, cause, recalls)
    assert results.classes == classes[:, 0].tolist()
    assert results.detections == counts[:, :, 0].sum(axis=0).tolist()
    for name, shares in error_diagnosis.shares(counts).items():
        assert results.shares[name] == [weighting.value(share) for share in shares[:, 0]]

    # In the order of the images of `known`: those of far come first.
    wild_draws = bootstrap.ImageDraws(wild_images, 100, 1)
    id_draws = bootstrap.ImageDraws(set(regions.image_id), 100, 0)
    weights = np.concatenate([wild_draws.weights, id_draws.weights], axis=1)
    drawn_counts, _ = error_diagnosis.counts_at_recalls(matched, cause, recalls, weights)
    for name, shares in error_diagnosis.shares(drawn_counts).items():
        expected = []
        for replicates, share in zip(shares, results.shares[name], strict=True):
            expected.append(bootstrap.interval(replicates, value=share))
        assert results.intervals[name] == expected


def test_figures_3_and_4_have_as_many_wild_images_as_closed_ones(files, objects, regions):
    """4,952 of 23,008 in the paper (Section 3.1); here two of six, as there are two ID images."""
    known = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    detections = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.9, "dog"), ("i1", NOWHERE, 0.95, "cat")
    )
    for split in ("val", "test"):
        write_split(files, split, known, detections)
    names = [f"o{number}" for number in range(6)]
    foxes = objects(*[(name, FIRST, "fox") for name in names])
    on_foxes = regions(*[(name, FIRST, 0.95, "dog") for name in names])
    write_split(files, "far", foxes, on_foxes)
    inputs = RunInputs(files, run.Roles(("far",)), EvaluationSettings(replicates=100))
    results = WildImages(inputs).metrics()

    assert results.ratio == 3
    assert results.confusion == {"cat": {"cat": 1}, "dog": {"dog": 1}, "fox": {"dog": 2}}
    at = results.errors.recalls.index(0.3)
    # Open: a cat, a dog, a detection on nothing, and two foxes.
    assert results.errors.ratio == 1
    assert results.errors.detections[at] == 5
    assert results.errors.shares["unknown_unknown"][at] == pytest.approx(2 / 5)
    assert results.errors.shares["background"][at] == pytest.approx(1 / 5)
    # Closed: without the foxes, Figure 3 a to c.
    closed = results.closed_errors
    assert (closed.ratio, closed.detections[at]) == (0, 3)
    assert closed.shares["correct"][at] == pytest.approx(2 / 3)
    assert closed.shares["background"][at] == pytest.approx(1 / 3)
    assert closed.shares["unknown_unknown"][at] == 0
    low, high = closed.intervals["correct"][at]
    assert low <= 2 / 3 <= high


def test_the_images_of_all_ood_splits_are_the_wild_ones(files, objects, regions):
    # A second split shows an image of the same name.
    write_split(files, "near", objects(("o1", FIRST, "wolf")), regions(("o1", FIRST, 0.95, "dog")))
    write_scores(files, "msp", "near", regions(("o1", FIRST, 0.95, "dog")), [0.95])
    report = evaluated(files, ["msp"], ["far", "near"], EvaluationSettings(replicates=0))
    # Three images and one, to two of the ID split.
    assert report.wilderness.ratio == 2
    # At recall 0.3 the operating points are 0.9 and 0.7: a cat, a dog, and the wolf.
    errors = report.wilderness.errors
    at = errors.recalls.index(0.3)
    assert (errors.ratio, errors.classes[at]) == (1, 2)  # as many wild images as closed ones
    assert errors.shares["correct"][at] * errors.detections[at] == pytest.approx(2)
    assert report.wilderness.operating_points.ratios[-1] == 2
    assert report.wilderness.background is None  # the detector has no such column
    assert report.wilderness.at_recall["0.3"].impact[-1] == 1 / 2
    with files.plot("wilderness").open() as file:
        assert {row["recall"] for row in csv.DictReader(file)} == {"0.1", "0.3", "0.5"}
