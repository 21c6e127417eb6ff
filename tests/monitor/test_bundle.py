"""Bundles are checked when they are written and when they are loaded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.monitor.conftest import DEMO, Deployed, make, scene
from tests.support.messages import OUTSIDE

from farther.errors import DataError, ParameterError
from farther.monitor import Bundle, Chosen, Monitor, write_bundle
from farther.monitor.bundle import header_digest
from farther.monitor.bundle_source import _copied
from farther.scoring.entries import read_entry
from farther.tables import Header

METHODS = {
    "msp": {},
    "knn": {"k": 2},
    "vim": {"method": "vim", "dim": 1000},
    "vos": {"output": "logistic"},
    "odin": {"method": "msp", "pass": "absent"},
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory) -> Deployed:
    weights = str(DEMO / "drawings-resnet-1.safetensors")
    entry = {"adapter": "classifier", "weights": weights, "params": {"device": "cpu"}}
    return make(tmp_path_factory.mktemp("run"), entry, METHODS, 0.0)


def changed(folder, **values):
    info = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**info, **values}))
    return folder


def test_a_bundle_with_its_checkpoint_works_where_nothing_else_is(deployed, tmp_path):
    (deployed.bundle("knn")).rename(tmp_path / "elsewhere")
    monitor = Monitor.load(tmp_path / "elsewhere", device="cpu")
    assert monitor.bundle.info.detector.weights == "checkpoint.safetensors"
    assert len(monitor(scene(3))) == 1
    seen = monitor.bundle.validation
    assert (seen.images, seen.detections, seen.empty) == (10, 10, 0)
    assert seen.unknown == sum(
        one.unknown.sum() for one in monitor([scene(n) for n in range(100, 110)])
    )


def test_a_bundle_may_refer_to_its_checkpoint_and_notices_when_it_changes(deployed, tmp_path):
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes((DEMO / "drawings-resnet-1.safetensors").read_bytes())
    source = deployed.source("msp")
    source = replace(source, detector={**source.detector, "weights": str(weights)})
    bundle = write_bundle(source, tmp_path / "bundle", copy=False)
    assert not list(bundle.glob("checkpoint*"))
    arrays = load_file(weights)
    weights.unlink()
    with pytest.raises(DataError, match="the checkpoint does not exist"):
        Monitor.load(bundle, device="cpu")
    save_file({name: np.array(array) for name, array in arrays.items()}, weights)
    with pytest.raises(DataError, match="not the one that the method was fitted on"):
        Monitor.load(bundle, device="cpu")


def test_thresholds_of_a_choice_take_the_place_of_those_of_the_run(deployed, tmp_path):
    source = replace(
        deployed.source("msp"), chosen=Chosen(0.0, 2.0, {"max_false_alarms": 0.02}, {"found": None})
    )
    monitor = Monitor.load(write_bundle(source, tmp_path / "bundle"), device="cpu")
    assert monitor(scene(1)).unknown.all()
    assert (monitor.bundle.info.tau, monitor.bundle.info.budget) == (
        2.0,
        {"max_false_alarms": 0.02},
    )
    assert monitor.bundle.validation.unknown == monitor.bundle.validation.detections


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": "other"}, "'format': Input should be 'farther.bundle', found 'other'"),
        ({"version": 2}, "'version': Input should be 1, found 2"),
        ({"tau": "high"}, "'tau'"),
        ({"header": {"classes": ["a"]}}, "'background_index'"),
        ({"farther": None}, "'farther'"),
    ],
)
def test_a_changed_description_names_the_field(deployed, values, message):
    with pytest.raises(DataError, match=message):
        Bundle.load(changed(deployed.bundle("msp"), **values))


def test_changed_classes_and_paths_out_of_the_folder_are_refused(deployed):
    folder = deployed.bundle("msp")
    info = json.loads((folder / "bundle.json").read_text())
    classes = [*info["header"]["classes"][1:], info["header"]["classes"][0]]
    with pytest.raises(DataError, match="header or last layer are not those that were written"):
        Bundle.load(changed(folder, header={**info["header"], "classes": classes}))
    detector = {**info["detector"], "weights": "../other.safetensors"}
    changed(folder, header=info["header"], detector=detector)
    with pytest.raises(DataError, match=OUTSIDE):
        Bundle.load(folder).detector("cpu")


def test_a_header_that_is_not_the_checkpoints_is_refused(deployed):
    folder = deployed.bundle("msp")
    info = json.loads((folder / "bundle.json").read_text())
    header = {**info["header"], "classes": info["header"]["classes"][::-1]}
    digests = {
        **info["digests"],
        "header": header_digest(Header.from_json(header, folder, folder / "bundle.json")),
    }
    bundle = Bundle.load(changed(folder, header=header, digests=digests))
    with pytest.raises(
        DataError, match="classes or last layer are not those that the method was fitted on"
    ):
        Monitor(bundle, device="cpu")


def test_a_changed_method_is_refused(deployed):
    folder = deployed.bundle("knn")
    state = load_file(folder / "method/state.safetensors")
    save_file(
        {name: np.array(array) + np.float32(1) for name, array in state.items()},
        folder / "method/state.safetensors",
    )
    with pytest.raises(DataError, match="are not those that were written"):
        Bundle.load(folder)


def test_what_cannot_be_bundled_is_refused_by_name(deployed, tmp_path):
    with pytest.raises(
        ParameterError, match="vos does not apply to run: vos: the detector has no vos_head"
    ):
        deployed.bundle("vos")
    with pytest.raises(
        ParameterError, match="odin does not apply to run: the run has no pass 'absent'"
    ):
        deployed.bundle("odin")
    source = deployed.source("msp")
    imported = {"adapter": "coco_results", "weights": "found.json"}
    with pytest.raises(
        ParameterError, match="detections are imported, so there is no network to run"
    ):
        write_bundle(replace(source, detector=imported), tmp_path / "bundle")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/notes.txt").touch()
    with pytest.raises(ParameterError, match="data was not written by `farther bundle`"):
        write_bundle(source, tmp_path / "data")
    other = {
        **source.detector,
        "weights": str(DEMO / "drawings-resnet-1.safetensors"),
        "params": {"latents": ["layer1"]},
    }
    with pytest.raises(DataError, match="have changed since: run `farther repro evaluate`"):
        write_bundle(replace(source, detector=other), tmp_path / "bundle")
    changed = replace(source, method=read_entry("msp", {"method": "energy"}))
    with pytest.raises(DataError, match=r"methods\.msp of params\.yaml has changed since"):
        write_bundle(changed, tmp_path / "bundle")
    hotter = read_entry("knn", {"k": 7})
    with pytest.raises(DataError, match=r"methods\.knn of params\.yaml has changed since"):
        write_bundle(replace(deployed.source("knn"), method=hotter), tmp_path / "bundle")
    regions = deployed.files.regions("val") / "regions.json"
    for file, stage in ((deployed.files.threshold, "fit"), (regions, "infer")):
        file.rename(tmp_path / file.name)
        absent = (
            f"{re.escape(str(file))}: the file does not exist: the run has no such artifact yet: "
            "run `farther repro "
        )
        with pytest.raises(DataError, match=f"{absent}{stage}@run`"):
            write_bundle(source, tmp_path / "bundle")
        (tmp_path / file.name).rename(file)
    assert not (tmp_path / "bundle").exists()


def test_a_folder_that_is_not_a_bundle_says_how_one_is_written(tmp_path):
    with pytest.raises(DataError, match="`farther bundle RUN METHOD OUT` writes one"):
        Monitor.load(tmp_path)


def test_weights_of_a_graph_keep_their_place_beside_it(tmp_path):
    graph, weights = tmp_path / "model/x.onnx", tmp_path / "model/weights/x.data"
    weights.parent.mkdir(parents=True)
    graph.write_bytes(b"graph")
    weights.write_bytes(b"weights")
    adapter = SimpleNamespace(weights=graph, files=lambda: (graph, weights))
    (tmp_path / "bundle").mkdir()
    assert _copied(adapter, tmp_path / "bundle") == ("checkpoint/x.onnx", True)
    assert (tmp_path / "bundle/checkpoint/weights/x.data").read_bytes() == b"weights"
