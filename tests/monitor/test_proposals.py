"""Proposals where a detector is deployed: those of the pipeline, on no detection and above the threshold."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.monitor.conftest import DEMO, make, propose

from farther.detectors.proposals import read_sources
from farther.errors import DataError, ParameterError
from farther.evaluation.proposals import evaluate_proposals
from farther.evaluation.results import write_results
from farther.evaluation.settings import EvaluationSettings, ProposalSettings
from farther.methods import load
from farther.metrics.open_set.outcomes import MatchingRules
from farther.metrics.open_set.proposals import Recovery, beside
from farther.monitor import Bundle, Monitor
from farther.monitor.drawing import PROPOSED, draw
from farther.monitor.predict import PredictSettings, predict
from farther.monitor.sources import open_source
from farther.tables import Objects, Regions
from farther.tables.documents import write_json

#: Objectness above which a proposal is called unknown.
THRESHOLD = 1e-4


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    entry = {
        "adapter": "yolo",
        "weights": str(DEMO / "voc-yolov8.safetensors"),
        "params": {"score_threshold": 0.005},
        "proposals": {"boxes": {"kind": "anchors", "most": 20}},
    }
    made = make(tmp_path_factory.mktemp("run"), entry, {"energy": {}, "msp": {}}, 0.01, ("test", "near", "pasted"))
    propose(made, "boxes", THRESHOLD)
    entry["proposals"]["other"] = {"kind": "second_detector", "run": "x"}
    return made


def test_proposals_of_the_monitor_are_those_of_the_pipeline(deployed):
    monitor = deployed.monitor("energy")
    stored = Regions.read(deployed.files.proposals("boxes", "val"))
    detections = deployed.stored("energy")[0]
    wanted = stored[beside(stored, detections) & (stored.score > THRESHOLD)]
    assert len(wanted) > 5
    for ids, files in deployed.batches():
        for name, found in zip(ids, monitor(files, ids, batch_size=len(ids)), strict=True):
            own = wanted[wanted.image_id == name]
            np.testing.assert_allclose(found.proposals.box, own.box, atol=1e-2)
            np.testing.assert_allclose(found.proposals.score, own.score, atol=1e-5)
            assert len(found) == len(found.score) == np.sum(detections.image_id == name)


def test_predict_writes_and_draws_them(deployed, tmp_path):
    monitor = deployed.monitor("energy")
    predict(monitor, open_source(str(deployed.folder / "val")), PredictSettings(out=tmp_path / "out"), log=str)
    table = pl.read_parquet(tmp_path / "out/proposals.parquet")
    images = pl.read_parquet(tmp_path / "out/images.parquet")
    assert images["proposals"].sum() == len(table) > 5
    assert (table["objectness"] > THRESHOLD).all()
    # The images are those of validation: so are the numbers of drift.
    drift = json.loads((tmp_path / "out/drift.json").read_text())
    validation, total = (drift[name]["proposals"] for name in ("validation", "total"))
    assert sum(validation["counts"]) == sum(total["counts"]) == len(table)
    assert np.abs(np.subtract(validation["counts"], total["counts"])).max() <= 1  # the network's rounding
    name = table["image_id"][0]
    pixels = np.asarray(Image.open(deployed.folder / "val" / name).convert("RGB"))
    picture = draw(pixels, monitor(pixels, [name]))
    colour = np.array([int(PROPOSED[k : k + 2], 16) for k in (5, 3, 1)])
    assert (np.abs(picture.astype(int) - colour).max(axis=2) < 8).sum() > 50


def test_a_bundle_without_them_gives_none(deployed, tmp_path):
    deployed.files.recovered.rename(tmp_path / "kept.json")
    try:
        monitor = deployed.monitor("energy")
    finally:
        (tmp_path / "kept.json").rename(deployed.files.recovered)
    assert monitor(deployed.folder / "val/100.png").proposals is None


@pytest.fixture(scope="module")
def measured(deployed):
    """The run with all rules measured: unknown objects are where every other proposal on no detection is."""
    files, splits = deployed.files, {"near": "near", "pasted": "far"}
    for split in splits:
        found = Regions.read(files.proposals("boxes", split))
        detections = Regions.read(files.regions(split)).above(deployed.operating)
        yaks = found[beside(found, detections)][::2]
        columns = {"image_id": yaks.image_id, "object_id": np.arange(len(yaks)), "box": yaks.box}
        Objects(**columns, category=["yak"] * len(yaks)).write(files.objects(split))
    write_json(deployed.folder / "artifacts/splits/drawn/roles.json", {"test": list(splits), "distance": splits})
    # A τ that half of the proposals are below.
    tau, val = files.fitted("energy") / "threshold.json", Regions.read(files.proposals("boxes", "val"))
    half = float(np.median(load(files.fitted("energy")).score(val)))
    write_json(tau, {**json.loads(tau.read_text()), "threshold": half})
    asked = ProposalSettings(alarms=2, rates=(2.0,), methods=("energy",), learn_from="pasted")
    sources = read_sources("run", {"boxes": deployed.entry["proposals"]["boxes"]})
    found = evaluate_proposals(files, sources, EvaluationSettings(replicates=0, proposals=asked))
    before = files.recovered.read_bytes()
    write_results(files.recovered, found)
    yield found
    files.recovered.write_bytes(before)


@pytest.mark.parametrize("rule", ["", ", energy", ", logistic", ", logistic with energy"])
def test_the_monitor_calls_what_the_pipeline_called_by_the_same_rule(rule, deployed, measured):
    monitor = deployed.monitor("energy", proposals=f"boxes{rule}")
    results = measured.sources[f"boxes{rule}"]
    found = {
        split: [one for ids, files in deployed.batches(split) for one in monitor(files, ids, batch_size=len(ids))]
        for split in ("test", "near")
    }
    assert 0 < sum(len(one.proposals) for one in found["test"]) == pytest.approx(10 * results.alarms)
    objects, rules = Objects.read(deployed.files.objects("near")), MatchingRules(known_classes=["cat"])
    detections, proposals = (
        Regions.concatenate([getattr(one, name) for one in found["near"]]) for name in ("regions", "proposals")
    )
    shares = Recovery.of(objects, detections, proposals, rules).found(-np.inf)
    values = results.splits["near"].values
    assert shares["still_missed"][0] == pytest.approx(values["still_missed"])
    assert 0 < values["still_missed"] < values["missed"]
    # Those of the validation split, which drift is compared with, are as many as τ_o was chosen for.
    assert 20 * 0.9 <= sum(monitor.bundle.validation.proposals.counts) <= 20
    for one in found["test"]:
        assert (np.diff(one.proposals.score) <= 0).all()


@pytest.mark.parametrize(
    ("method", "asked", "message"),
    [
        ("msp", "boxes, energy", "cannot be bundled: the rule needs the method 'energy', and the bundle holds 'msp'"),
        ("msp", "boxes, logistic with energy", "cannot be bundled: the rule needs the method 'energy'"),
        ("msp", "other", "'other' cannot be bundled: their kind is 'second_detector', and a bundle runs its own"),
        ("msp", "boxes, reviewed", "'reviewed' changes what is measured"),
        ("msp", "boxes, logistik", "unknown rule of proposals 'boxes, logistik'. Did you mean 'boxes, logistic'"),
        ("msp", "rpn", "unknown source of proposals 'rpn'"),
    ],
)
def test_rules_that_a_bundle_cannot_hold_are_refused_by_name(method, asked, message, deployed, measured):
    with pytest.raises(ParameterError, match=message):
        deployed.bundle(method, proposals=asked)


def test_what_was_not_measured_or_scores_a_pass_is_bundled_without_proposals_unless_they_are_asked_for(deployed):
    source = deployed.source("energy")
    of_pass = replace(source, method=replace(source.method, pass_name="dropout"))
    assert source.proposals is not None
    assert of_pass.proposals is None
    with pytest.raises(ParameterError, match="'energy' scores the pass 'dropout', which gives none"):
        _ = replace(of_pass, asked_proposals="boxes").proposals
    further = replace(source, detector={**source.detector, "proposals": {"feature_map": {}}})
    assert further.proposals is None
    with pytest.raises(DataError, match="no results of the source 'feature_map': run `dvc repro proposals@run`"):
        _ = replace(further, asked_proposals="feature_map").proposals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"combination": None}, "the rule 'logistic' needs a combination of 2 weights"),
        ({"tau": 1.0}, "tau must be given if the rule has a method, and else be null"),
        ({"rule": "objectness"}, "needs a combination of 0 weights"),
        ({"spread": [0.0, 1.0]}, "field 'proposals.combination.spread.0'"),
        ({"centre": [0.0]}, "must have as many numbers each"),
    ],
)
def test_a_rule_that_was_changed_is_not_loaded(change, message, deployed, measured):
    file = deployed.bundle("msp", proposals="boxes, logistic") / "bundle.json"
    info = json.loads(file.read_text())
    said = info["proposals"]
    (said["combination"] if set(change) & set(said["combination"]) else said).update(change)
    file.write_text(json.dumps(info))
    with pytest.raises(DataError, match=message):
        Bundle.load(file.parent)


def test_proposals_of_another_detector_are_none_of_a_bundles_network(deployed):
    folder = deployed.bundle("energy")
    info = json.loads((folder / "bundle.json").read_text())
    info["proposals"]["params"] = deployed.entry["proposals"]["other"]
    (folder / "bundle.json").write_text(json.dumps(info))
    with pytest.raises(ParameterError, match="kind 'second_detector': they do not come of the bundle's network"):
        Monitor.load(folder, device="cpu")


def test_a_graph_gives_only_proposals_that_it_computes_by_objectness(deployed, measured):
    outputs = {}
    for asked in ("boxes", "boxes, logistic"):
        info = Bundle.load(deployed.bundle("msp", proposals=asked, onnx=True)).info
        outputs[asked] = {port.name for port in info.onnx.outputs}
        assert info.proposals.title == asked
    assert outputs["boxes"] - outputs["boxes, logistic"] == {"proposal_box", "proposal_objectness"}
    assert info.proposals.not_in_graphs == "the rule 'logistic' is not written as a graph"
    salient = info.proposals.model_copy(update={"rule": "objectness", "params": {"kind": "feature_map"}})
    assert salient.not_in_graphs == "'feature_map' is no part of the graph"
