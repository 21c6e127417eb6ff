"""Proposals of a deployed detector: those of the pipeline that match no detection, above t*."""

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
from farther.metrics.open_set.outcomes import MatchingRules
from farther.metrics.open_set.proposals import Recovery, apart_from_detections
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
    made = make(tmp_path_factory.mktemp("run"), entry, {"energy": {}}, 0.01, ("test", "near"))
    propose(made, "boxes", THRESHOLD)
    entry["proposals"]["other"] = {"kind": "second_detector", "run": "x"}
    return made


def test_proposals_of_the_monitor_are_those_of_the_pipeline(deployed):
    monitor = deployed.monitor("energy")
    stored = Regions.read(deployed.files.proposals("boxes", "val"))
    detections = deployed.stored("energy")[0]
    wanted = stored[apart_from_detections(stored, detections) & (stored.score > THRESHOLD)]
    assert len(wanted) > 5
    for ids, files in deployed.batches():
        for name, found in zip(ids, monitor(files, ids, batch_size=len(ids)), strict=True):
            own = wanted[wanted.image_id == name]
            np.testing.assert_allclose(found.proposals.box, own.box, atol=1e-2)
            np.testing.assert_allclose(found.proposals.score, own.score, atol=1e-5)
            assert len(found) == len(found.score) == np.sum(detections.image_id == name)


def test_predict_writes_and_draws_them(deployed, tmp_path):
    monitor = deployed.monitor("energy")
    predict(
        monitor,
        open_source(str(deployed.folder / "val")),
        PredictSettings(out=tmp_path / "out"),
        log=str,
    )
    table = pl.read_parquet(tmp_path / "out/proposals.parquet")
    images = pl.read_parquet(tmp_path / "out/images.parquet")
    assert images["proposals"].sum() == len(table) > 5
    assert (table["objectness"] > THRESHOLD).all()
    # The images are those of validation: so are the numbers of drift.
    drift = json.loads((tmp_path / "out/drift.json").read_text())
    validation, total = (drift[name]["proposals"] for name in ("validation", "total"))
    assert sum(validation["counts"]) == sum(total["counts"]) == len(table)
    assert (
        np.abs(np.subtract(validation["counts"], total["counts"])).max() <= 1
    )  # the network's rounding
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
    """Results of the run: unknown objects are where every other proposal on no detection is."""
    files = deployed.files
    proposals = Regions.read(files.proposals("boxes", "near"))
    detections = Regions.read(files.regions("near")).above(deployed.operating)
    yaks = proposals[apart_from_detections(proposals, detections)][::2]
    objects = Objects(
        image_id=yaks.image_id,
        object_id=np.arange(len(yaks)),
        box=yaks.box,
        category=["yak"] * len(yaks),
    )
    objects.write(files.objects("near"))
    roles = {"test": ["near"], "distance": {"near": "near"}}
    write_json(deployed.folder / "artifacts/splits/drawn/roles.json", roles)

    settings = EvaluationSettings(replicates=0, proposals=ProposalSettings(alarms=2, rates=(2.0,)))
    sources = read_sources("run", {"boxes": deployed.entry["proposals"]["boxes"]})
    results = evaluate_proposals(files, sources, settings)
    before = files.recovered.read_bytes()
    write_results(files.recovered, results)
    yield results
    files.recovered.write_bytes(before)


def test_the_monitor_calls_what_the_pipeline_called(deployed, measured):
    monitor = deployed.monitor("energy", proposals="boxes")
    results = measured.sources["boxes"]
    found = {
        split: [
            one
            for ids, files in deployed.batches(split)
            for one in monitor(files, ids, batch_size=len(ids))
        ]
        for split in ("test", "near")
    }
    assert (
        0 < sum(len(one.proposals) for one in found["test"]) == pytest.approx(10 * results.alarms)
    )
    objects, rules = (
        Objects.read(deployed.files.objects("near")),
        MatchingRules(known_classes=["cat"]),
    )
    detections, proposals = (
        Regions.concatenate([getattr(one, name) for one in found["near"]])
        for name in ("regions", "proposals")
    )
    shares = Recovery.of(objects, detections, proposals, rules).missed_shares(-np.inf)
    values = results.splits["near"].values
    assert shares["still_missed"][0] == pytest.approx(values["still_missed"])
    assert 0 < values["still_missed"] < values["missed"]
    # Those of the validation split, which drift is compared with, are as many as τ_o was chosen
    # for.
    assert 20 * 0.9 <= sum(monitor.bundle.validation.proposals.counts) <= 20
    for one in found["test"]:
        assert (np.diff(one.proposals.score) <= 0).all()


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("other", "'other' cannot be bundled: their kind is 'second_detector', and a bundle runs"),
        ("rpn", "unknown source of proposals 'rpn'"),
    ],
)
def test_proposals_that_a_bundle_cannot_hold_are_refused_by_name(requested, message, deployed):
    with pytest.raises(ParameterError, match=message):
        deployed.bundle("energy", proposals=requested)


def test_unmeasured_sources_and_methods_of_a_pass_are_bundled_without_proposals_by_default(
    deployed,
):
    source = deployed.source("energy")
    of_pass = replace(source, method=replace(source.method, pass_name="dropout"))
    assert source.proposals is not None
    assert of_pass.proposals is None
    with pytest.raises(
        ParameterError, match="'energy' scores the pass 'dropout', which gives none"
    ):
        _ = replace(of_pass, asked_proposals="boxes").proposals
    further = replace(source, detector={**source.detector, "proposals": {"feature_map": {}}})
    assert further.proposals is None
    with pytest.raises(
        DataError, match="no results of the source 'feature_map': run `farther repro evaluate`"
    ):
        _ = replace(further, asked_proposals="feature_map").proposals


def test_proposals_of_another_detector_are_none_of_a_bundles_network(deployed):
    folder = deployed.bundle("energy")
    info = json.loads((folder / "bundle.json").read_text())
    info["proposals"]["params"] = deployed.entry["proposals"]["other"]
    (folder / "bundle.json").write_text(json.dumps(info))
    with pytest.raises(
        ParameterError, match="kind 'second_detector': they do not come of the bundle's network"
    ):
        Monitor.load(folder, device="cpu")


def test_a_graph_gives_only_proposals_that_it_computes(deployed, monkeypatch):
    def outputs():
        info = Bundle.load(deployed.bundle("energy", onnx=True)).info
        return {port.name for port in info.onnx.outputs}, info.proposals.not_in_graphs

    with_proposals, reason = outputs()
    assert reason is None
    monkeypatch.setattr("farther.monitor.bundle_proposals.IN_GRAPHS", ("rpn", "queries"))
    without, reason = outputs()
    assert reason == "'anchors' is no part of the graph"
    assert with_proposals - without == {"proposal_box", "proposal_objectness"}
