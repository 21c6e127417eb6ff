"""Recovered objects: by stored proposals, by a second detector, and by imported boxes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.evaluation.evaluated_runs import write_json, write_scores, write_split
from torchvision.ops import nms

from farther.detectors.proposal_sources import ImportedBoxes, SecondDetector, read_sources
from farther.errors import DataError, ParameterError
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.kept_proposals import check_second_detectors
from farther.evaluation.recovery import (
    class_agnostic_nms,
    evaluate_proposals,
    read_proposals,
    read_recovered,
)
from farther.evaluation.results import write_results
from farther.evaluation.settings import EvaluationSettings, ProposalSettings
from farther.evaluation.threshold import StoredTau
from farther.evaluation.with_proposals import UnknownProposals, called_sources, measure_methods
from farther.tables import Objects, Regions
from farther.tables.unknown_proposals import UnknownProposalTable

FOX, YAK, HILL, ELSE = [0, 0, 50, 50], [100, 0, 160, 60], [0, 100, 40, 140], [200, 200, 260, 260]


def regions(*rows):
    """Regions of (image, box, score)."""
    images, boxes, scores = zip(*rows, strict=True)
    label, logits = np.zeros(len(rows), int), np.zeros((len(rows), 1))
    return Regions(
        image_id=list(images),
        region_id=np.arange(len(rows)),
        box=list(boxes),
        score=list(scores),
        label=label,
        logits=logits,
        classes=("fox",),
    )


def objects(*rows):
    """Objects of (image, box, category)."""
    images, boxes, names = zip(*rows, strict=True)
    return Objects(
        image_id=list(images), object_id=np.arange(len(rows)), box=list(boxes), category=list(names)
    )


@pytest.fixture
def files(tmp_path):
    """A run with a near split: a misclassified yak, a missed yak, and a missed emu."""
    made = RunFiles("run", "b", tmp_path)
    known = objects(*((image, FOX, "fox") for image in "abcd"))
    for split in ("val", "test"):
        write_split(made, split, known, regions(*((image, FOX, 0.9) for image in "abcd")))
        # On the fox: dropped. Elsewhere: three false alarms in four images.
        rows = [
            ("a", FOX, 0.99),
            ("a", HILL, 0.8),
            ("b", HILL, 0.6),
            ("c", HILL, 0.2),
            ("d", [2, 2, 30, 30], 0.97),
        ]
        regions(*rows).write(made.proposals("rpn", split))
    unknown = objects(("y", YAK, "yak"), ("x", YAK, "yak"), ("y", ELSE, "emu"))
    write_split(made, "near", unknown, regions(("x", YAK, 0.8), ("y", YAK, 0.1)))
    regions(("x", YAK, 0.95), ("y", YAK, 0.7), ("y", ELSE, 0.5)).write(
        made.proposals("rpn", "near")
    )
    write_json(made.threshold, {"threshold": 0.5})
    write_json(tmp_path / "splits/b/roles.json", {"test": ["near"], "distance": {"near": "near"}})
    return made


def test_results_are_those_counted_by_hand(files):
    settings = EvaluationSettings(
        replicates=100, proposals=ProposalSettings(alarms=0.5, rates=(0.0, 0.25, 0.5, 0.75))
    )
    found = evaluate_proposals(files, read_sources("run", {"rpn": {}}), settings)
    source = found.sources["rpn"]
    assert (source.threshold, source.alarms, source.proposals) == (pytest.approx(0.2), 0.5, 0.75)
    near = source.distances["near"]
    assert near.values["objects"] == 3
    assert near.values["missed"] == pytest.approx(2 / 3)
    assert near.values["still_missed"] == 0
    # Thresholds 0.8, 0.6, 0.2 and none: the yak at 0.7 from the second on, the emu at 0.5 from the
    # third on.
    assert [point.still_missed for point in near.froc] == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert all(low <= high for low, high in (point.interval for point in near.froc))
    assert near.by_category["emu"] == {"objects": 1, "missed": 1.0, "still_missed": 0.0}
    assert source.splits["near"].values["ar@100"] == 1.0
    assert near.curve[0] == (0.0, pytest.approx(2 / 3, abs=1e-5))
    assert read_recovered(files) is None
    write_results(files.recovered, found)
    assert read_recovered(files) == found


@pytest.mark.parametrize("rates", [(0.25, 2.0), (0.004,), (0.0,)])
def test_a_curve_goes_from_no_false_alarm_to_the_largest_rate(files, rates):
    settings = EvaluationSettings(replicates=0, proposals=ProposalSettings(rates=rates))
    near = (
        evaluate_proposals(files, read_sources("run", {"rpn": {}}), settings)
        .sources["rpn"]
        .distances["near"]
    )
    at, still_missed = zip(*near.curve, strict=True)
    assert (at[0], at[-1]) == (0, pytest.approx(max(rates)))
    assert list(at) == sorted(at) and list(still_missed) == sorted(still_missed, reverse=True)
    assert (still_missed[0], still_missed[-1]) == pytest.approx(
        (2 / 3, near.froc[-1].still_missed), abs=1e-5
    )


@pytest.mark.parametrize(("images", "tau"), [("abcd", 0.8), ("abcde", 0.6)])
def test_by_default_one_false_alarm_in_five_validation_images_is_allowed(files, images, tau):
    known = objects(*((image, FOX, "fox") for image in images))
    write_split(files, "val", known, regions(*((image, FOX, 0.9) for image in images)))
    found = evaluate_proposals(
        files, read_sources("run", {"rpn": {}}), EvaluationSettings(replicates=0)
    )
    assert found.sources["rpn"].threshold == pytest.approx(tau)  # alarms at 0.8, 0.6 and 0.2


@pytest.mark.parametrize("tau", [0.5, 0.9])  # a detection whose score is τ is kept
def test_a_method_s_metrics_with_proposals_are_those_counted_by_hand(files, tmp_path, tau):
    write_scores(files, "msp", "test", Regions.read(files.regions("test")), [0.9, 0.9, 0.1, 0.9])
    write_scores(files, "msp", "near", Regions.read(files.regions("near")), [0.9, 0.2])
    settings = EvaluationSettings(replicates=100, proposals=ProposalSettings(alarms=0.25))
    called = files.recovered.parent / "called"
    found = evaluate_proposals(files, read_sources("run", {"rpn": {}}), settings, tables=called)
    assert found.sources["rpn"].threshold == pytest.approx(0.6)
    write_results(files.recovered, found)
    assert called_sources(files) == ["rpn"]
    fixed = StoredTau(threshold=tau, rule="fixed", keep=None, regions=0)
    together = measure_methods(RunInputs(files, files.roles, settings), ["rpn"], {"msp": fixed})
    write_results(files.with_proposals("msp"), together["msp"])
    near = read_recovered(files).sources["rpn"].methods["msp"]["near"]
    # One yak is kept as a fox, the other is missed and found by the proposal at 0.7; the emu's is
    # at 0.5.
    assert near.without == pytest.approx(
        {"nose": 1 / 3, "r_u": 0, "p_u": None, "ap_u": 0, "u_recall": 1 / 3}
    )
    found = {name: near.values[name] for name in near.without}
    assert found == pytest.approx(
        {"nose": 1 / 3, "r_u": 1 / 3, "p_u": 1, "ap_u": 1 / 3, "u_recall": 1 / 3}
    )
    assert set(near.intervals) == set(found)
    assert (near.by_category["yak"].values["r_u"], near.by_category["emu"].values["r_u"]) == (
        0.5,
        0,
    )
    budget = {
        kind: (of.values["count"], of.values["r_u"]) for kind, of in near.error_budget.items()
    }
    assert budget == {
        "found by proposals": (1, pytest.approx(1 / 3)),
        "missed": (1, pytest.approx(1 / 3)),
    }
    called = UnknownProposalTable.read(files.called("rpn", "near"))
    assert called.frame.select("image_id", "object_id").rows() == [("y", 0)]


def test_which_object_each_called_proposal_finds_is_stored(files, tmp_path):
    unknown = objects(("x", YAK, "yak"), ("y", YAK, "yak"), ("y", ELSE, "emu")).with_columns(
        object_id=[30, 10, 20]
    )
    write_split(files, "near", unknown, regions(("x", YAK, 0.8)))
    split = RunSplit(files, "near")
    # The second lies on a detection, the third on nothing.
    rows = [("y", ELSE, 0.7), ("x", YAK, 0.95), ("x", HILL, 0.9), ("y", YAK, 0.5)]
    called = UnknownProposals.of(split, split.regions(), regions(*rows), tau=-np.inf, iou=0.5)
    table = called.table(split)
    assert table.object_id.tolist() == [20, -1, 10]
    table.write(tmp_path / "called.parquet")
    assert (
        UnknownProposals.read(split, tmp_path / "called.parquet").matched_object.tolist()
        == called.matched_object.tolist()
        == [2, -1, 1]
    )


def test_of_imported_boxes_the_best_of_each_image_that_are_large_enough_are_proposals(files):
    source = ImportedBoxes(file=Path("boxes.csv"), most=1, smallest=30)
    found = read_proposals(files, "rpn", source, "val")
    assert found.image_id.tolist() == ["a", "b", "c"]
    assert found.score == pytest.approx([0.99, 0.6, 0.2])


def test_a_second_detector_s_proposals_are_its_detections_without_classes(files, tmp_path):
    other = RunFiles("other", "b", tmp_path)
    for split in ("val", "test", "near"):
        Regions.read(files.proposals("rpn", split)).write(other.regions(split))
    sources = read_sources("run", {"other": {"kind": "second_detector", "run": "other"}, "rpn": {}})
    found = evaluate_proposals(
        files, sources, EvaluationSettings(replicates=0), {"other": other}.__getitem__
    )
    with pytest.raises(DataError, match="the files of run 'other' are needed"):
        read_proposals(files, "other", sources["other"], "val")
    first, second = found.sources["other"], found.sources["rpn"]
    assert first.distances == second.distances
    assert first.alarms_interval is None


def test_suppression_of_stored_boxes_is_torchvisions():
    random = np.random.default_rng(1)
    corner = random.uniform(0, 80, (300, 2))
    box = np.hstack([corner, corner + random.uniform(2, 60, (300, 2))]).astype(np.float32)
    scores = random.permutation(300) / 300
    table = regions(*zip(np.repeat(["a", "b", "c"], 100), box, scores, strict=True))
    found = class_agnostic_nms(table, SecondDetector(run="x", most=15, iou=0.4, smallest=6))
    for image in "abc":
        rows = np.flatnonzero(
            (table.image_id == image) & ((box[:, 2:] - box[:, :2]).min(axis=1) >= 6)
        )
        kept = rows[nms(torch.tensor(box[rows]), torch.tensor(table.score[rows]), 0.4).numpy()[:15]]
        assert set(found.region_id[found.image_id == image]) == set(table.region_id[kept])


def test_a_second_detector_must_be_another_run_on_the_benchmark():
    entries = {"one": {"benchmark": "b"}, "two": {"benchmark": "b"}, "far": {"benchmark": "c"}}
    check_second_detectors("one", read_sources("one", {"second_detector": {"run": "two"}}), entries)
    for name in ("one", "far", "absent"):
        with pytest.raises(
            ParameterError, match=rf"one\.proposals\.second_detector: .*{name}.*two"
        ):
            check_second_detectors(
                "one", read_sources("one", {"second_detector": {"run": name}}), entries
            )
