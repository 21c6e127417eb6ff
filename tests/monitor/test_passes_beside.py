"""Bundles of methods that read passes beside the detections: `cascade` and `fused`."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.monitor.conftest import DEMO, Deployed, make
from tests.monitor.test_monitor import clip

from farther.detectors.passes.crops import Crops
from farther.errors import DataError, ParameterError
from farther.monitor import Monitor, write_bundle
from farther.monitor.passes_beside import PassBeside
from farther.tables import Regions

METHODS = {
    "energy": {},
    "knn_on_crops": {"method": "knn", "pass": "crop", "k": 3},
    "mcm_on_crops": {"method": "mcm", "pass": "crop"},
    "uncertain": {"method": "mutual_information", "pass": "dropout"},
    "cascade": {"first": "energy", "then": "knn_on_crops", "share": 0.3},
    "cascade_dropout": {
        "method": "cascade",
        "first": "energy",
        "then": "uncertain",
        "share": 0.2,
    },
    "fused": {"of": ["energy", "mcm_on_crops"]},
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory) -> Deployed:
    folder = tmp_path_factory.mktemp("beside")
    encoder = {"model": f"local-dir:{clip(folder)}", "device": "cpu"}
    entry = {
        "adapter": "yolo",
        "weights": str(DEMO / "voc-yolov8.safetensors"),
        "params": {"device": "cpu", "score_threshold": 0.005},
        "classes": {"cat": "kitten"},
        "passes": {
            "crop": {"kind": "crops", "encoder": encoder, "unknown": ["thing"]},
            "dropout": {"passes": 3, "rate": 0.2},
        },
    }
    return make(folder, entry, METHODS, 0.01)


@pytest.fixture(scope="module")
def bundles(deployed) -> dict[str, Path]:
    return {name: deployed.bundle(name) for name in METHODS}


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("energy", "uncertain")])
def test_the_monitor_scores_as_the_pipeline_did(deployed, bundles, name):
    monitor = Monitor.load(bundles[name], device="cpu")
    found = {}
    for ids, files in deployed.batches():
        found |= {one.image_id: one for one in monitor(files, ids, len(files))}
    names = deployed.images().image_id
    regions, scores = deployed.stored(name)
    together = Regions.concatenate([found[image].regions for image in names])
    np.testing.assert_array_equal(together.box, regions.box)
    score = np.concatenate([found[image].score for image in names])
    assert len(score) > 20
    np.testing.assert_allclose(score, scores, rtol=0, atol=1e-6 * scores.std())


def test_only_detections_in_the_band_are_cropped(deployed, bundles, monkeypatch):
    boxes = []
    cut = Crops.cut

    def watched(self, image, box, score):
        boxes.append(box)
        return cut(self, image, box, score)

    monkeypatch.setattr(Crops, "cut", watched)
    monitor = Monitor.load(bundles["cascade"], device="cpu")
    low, high = monitor.bundle.method.band_
    for ids, files in deployed.batches():
        boxes.clear()
        results = monitor(files, ids, len(files))
        detections = Regions.concatenate([one.regions for one in results])
        in_band = [(one.score >= low) & (one.score <= high) for one in results]
        expected = detections.box[np.concatenate(in_band)]
        np.testing.assert_array_equal(np.concatenate(boxes or [np.zeros((0, 4))]), expected)


def test_a_pass_over_images_runs_for_batches_with_an_undecided_detection(
    deployed, bundles, monkeypatch
):
    calls = []
    rows = PassBeside.rows

    def watched(self, detections, is_asked, batch):
        calls.append(batch.image_ids)
        return rows(self, detections, is_asked, batch)

    monkeypatch.setattr(PassBeside, "rows", watched)
    monitor = Monitor.load(bundles["cascade_dropout"], device="cpu")
    low, high = monitor.bundle.method.band_
    expected = []
    for ids, files in deployed.batches():
        for image_id, file in zip(ids, files, strict=True):
            score = monitor(file, image_id).score
            if ((score >= low) & (score <= high)).any():
                expected.append([image_id])
    assert calls == expected
    assert 0 < len(calls) < len(deployed.images())


@pytest.mark.parametrize(
    ("method", "name", "params"),
    [("cascade", "crop", {"margin": 0.2}), ("uncertain", "dropout", {"rate": 0.1})],
)
def test_a_pass_whose_stored_rows_are_of_other_parameters_is_refused(
    deployed, tmp_path, method, name, params
):
    source = deployed.source(method)
    passes = dict(source.detector["passes"])
    passes[name] = {**passes[name], **params}
    other = replace(source, detector={**source.detector, "passes": passes})
    with pytest.raises(DataError, match="parameters of the pass have changed since") as caught:
        write_bundle(other, tmp_path / "bundle")
    assert name in str(caught.value.file)
    assert not (tmp_path / "bundle").exists()


def test_another_clip_is_refused(bundles, tmp_path):
    shutil.copytree(bundles["cascade"], tmp_path / "bundle")
    file = tmp_path / "bundle/clip/crop/open_clip_config.json"
    file.write_text(file.read_text().replace("bicubic", "bilinear"))
    with pytest.raises(DataError, match=r"field 'digests\.clip'"):
        Monitor.load(tmp_path / "bundle", device="cpu")


def test_a_graph_of_a_method_with_a_pass_is_refused(deployed):
    with pytest.raises(ParameterError, match="more than one run of the network"):
        deployed.bundle("cascade", onnx=True)
