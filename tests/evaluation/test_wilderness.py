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
from farther.tables import Regions


def test_wilderness_has_intervals_where_they_are_asked_for(files):
    settings = EvaluationSettings(replicates=0, recomputed_replicates=8)
    found = evaluated(files, ["msp"], ["far"], settings).wilderness
    low, high = found.intervals["map_closed"]
    assert low <= found.map_closed <= high
    assert evaluate(files).wilderness.intervals == {}


def test_the_protocol_of_the_evaluation_is_that_of_wilderness(files, objects, regions):
    found = regions(
        ("i1", NOWHERE, 0.9), ("i1", FIRST, 0.8), ("i1", SECOND, 0.7), classes=("cat", "dog")
    )
    write_split(files, "test", objects(("i1", FIRST, "cat"), ("i1", SECOND, "cat")), found)
    write_split(files, "far", objects(("o1", FIRST, "fox")), regions(("o1", FIRST, 0.75)))
    impact = {}
    for protocol in ("paper", "published-code"):
        settings = EvaluationSettings(replicates=0, recomputed_replicates=4, protocol=protocol)
        wild = WildImages(RunInputs(files, run.Roles(["far"]), settings)).metrics()
        impact[protocol] = wild.at_recall["0.5"].impact_by_precision[-1]
        low, high = wild.intervals["average_impact_by_precision@0.5"]
        assert low <= wild.at_recall["0.5"].average_impact_by_precision <= high
    # Precision 1/2 at the recall, and 2/3 further on; with the wild one 1/2 and 2/4.
    assert impact == {"paper": 0, "published-code": pytest.approx((2 / 3) / (1 / 2) - 1)}


def test_errors_and_background_have_intervals(files, objects, regions):
    def with_background(*rows):
        found = regions(*rows)
        logits = np.column_stack([found.logits, np.log(0.25 * np.exp(found.logits).sum(axis=1))])
        header = {"classes": (*found.classes, "nothing"), "background_index": 2}
        same = {
            name: getattr(found, name)
            for name in ("image_id", "region_id", "box", "score", "label")
        }
        return Regions(**same, logits=logits, **header)

    for split in ("val", "test"):
        write_split(
            files, split, objects(("a", FIRST, "cat")), with_background(("a", FIRST, 0.9, "cat"))
        )
    wild = objects(("o1", FIRST, "fox"), ("o2", FIRST, "elk"))
    write_split(
        files, "far", wild, with_background(("o1", FIRST, 0.95, "dog"), ("o2", SECOND, 0.1, "dog"))
    )
    write_scores(files, "msp", "test", regions(("a", FIRST, 0.9)), [0.9])
    write_scores(files, "msp", "far", regions(("o1", FIRST, 0.95), ("o2", SECOND, 0.1)), [0.9, 0.1])
    found = evaluated(files, ["msp"], ["far"], EvaluationSettings(replicates=5)).wilderness
    background = found.background
    # Background: 0.2 of all, so that the cat has 0.72 and the fox 0.76; the other dog lies on
    # nothing.
    assert (background.values["rejected_known"], background.values["rejected_unknown"]) == (0, 0)
    assert background.known.classes["cat"]["mean"] == pytest.approx(0.72 - 0.2, abs=1e-6)
    assert background.unknown.classes["dog"]["mean"] == pytest.approx(0.76 - 0.2, abs=1e-6)
    assert background.unknown.classes["dog"]["detections"] == 1
    assert background.intervals["rejected_known"] == (0, 0)
    for name, each in found.errors.intervals.items():
        for value, interval in zip(found.errors.shares[name], each, strict=True):
            assert interval[0] <= value <= interval[1]


def test_errors_are_those_of_one_table_of_closed_and_wild_images(files, world):
    def renamed(tables, prefix):
        return [
            table.with_columns(image_id=[f"{prefix}{name}" for name in table.image_id])
            for table in tables
        ]

    closed, wild = renamed(world(0, images=12), "i"), world(1, images=12)
    fox = wild[0].with_columns(category=["fox"] * len(wild[0]))
    for split, tables in {"val": closed, "test": closed, "far": (fox, wild[1])}.items():
        write_split(files, split, *tables)
    inputs = RunInputs(files, run.Roles(("far",)), EvaluationSettings(replicates=5))
    found = WildImages(inputs).errors()

    named = renamed((fox, wild[1]), "far/")
    objects, regions = (
        type(one).concatenate([one, other]) for one, other in zip(closed, named, strict=True)
    )
    settings = error_diagnosis.Diagnosis(wild_images=set(named[1].image_id))
    cause = error_diagnosis.diagnose(
        objects, regions, dict.fromkeys(regions.classes, -np.inf), settings
    )
    known = ClosedSet.of(objects, regions, max_detections=len(regions))
    number = np.array([error_diagnosis.CAUSES.index(name) for name in cause])[known.detections.row]
    names = settings.wild_images, set(closed[1].image_id)  # in the order of the images of `known`
    weights = np.concatenate(
        [bootstrap.ImageDraws(of, 5, 1 - k).weights for k, of in enumerate(names)], axis=1
    )
    matched, recalls = known.match([0.5]), found.recalls
    counts, classes = error_diagnosis.counts_at_recalls(matched, number, recalls)
    drawn, _ = error_diagnosis.counts_at_recalls(matched, number, recalls, weights)
    assert found.classes == classes[:, 0].tolist()
    assert found.detections == counts[:, :, 0].sum(axis=0).tolist()
    for name, shares in error_diagnosis.shares(counts).items():
        assert found.shares[name] == [weighting.value(share) for share in shares[:, 0]]
    for name, shares in error_diagnosis.shares(drawn).items():
        assert found.intervals[name] == [bootstrap.interval(at) for at in shares]


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
    assert report.wilderness.confusion["wolf"] == {"dog": 1}
    assert report.wilderness.at_recall["0.3"].impact[-1] == 1 / 2
    with (files.plots / "wilderness.csv").open() as file:
        assert {row["recall"] for row in csv.DictReader(file)} == {"0.1", "0.3", "0.5"}
