"""Passes that share the forward pass of the run's own regions."""

from dataclasses import replace

import pytest
from PIL import Image
from tests.detectors.demo import create, scene
from tests.images.speckles import content
from tests.support.cases import slow_but

from farther.detectors.inference import InferenceParams
from farther.detectors.passes import SharedPasses, infer_passes, read_passes
from farther.detectors.passes.dropout import DropoutPass
from farther.detectors.proposal_sources import read_sources, selections
from farther.detectors.split_inference import infer_splits
from farther.errors import DataError, ParameterError
from farther.tables import Images

ENTRIES = {
    "dropout": {"passes": 2, "rate": 0.3, "skip": ["train"]},
    "perturbed": {"kind": "perturb", "epsilon": 0.01},
}
PROPOSALS = {"faster_rcnn": "rpn", "yolo": "anchors", "detr": "queries"}
PARAMS = InferenceParams(batch_size=2, workers=0)


class World:
    """Two splits of four images, and what inference writes of them."""

    def __init__(self, folder, detector, entries=ENTRIES, params=PARAMS):
        self.folder = folder
        self.detector = detector
        self.entries = entries
        self.params = params
        for split in ("train", "near"):
            drawn(folder).write(folder / f"splits/{split}/images.parquet")

    def infer(self, *, shared, proposals=False):
        """Writes the regions, and with `shared` the passes that can be written beside them."""
        passes = None
        if shared:
            passes = SharedPasses(
                self.detector,
                read_passes("run", self.entries),
                self.folder / "regions",
                self.folder / "passes",
                self.params,
            )
        sources = {}
        if proposals:
            name = PROPOSALS[self.detector.name]
            sources = selections("run", read_sources("run", {name: {}}), self.detector)
        infer_splits(
            self.detector,
            self.folder / "splits",
            {"drawn": self.folder},
            self.folder / "regions",
            self.folder / "work",
            self.params,
            proposals=(self.folder / "proposals", sources),
            passes=passes,
            progress=False,
            log=lambda _: None,
        )

    def infer_passes(self):
        """Runs the passes that are not current, and returns the log."""
        lines = []
        infer_passes(
            self.detector,
            read_passes("run", self.entries),
            self.folder / "splits",
            {"drawn": self.folder},
            self.folder / "regions",
            self.folder / "passes",
            self.folder / "work-of-passes",
            self.params,
            progress=False,
            log=lines.append,
        )
        return lines

    def outputs(self):
        """The bytes of all results."""
        results = {}
        for name in ("regions", "proposals", "passes"):
            for file, bytes_of_file in content(self.folder / name).items():
                results[f"{name}/{file}"] = bytes_of_file
        return results


def drawn(folder):
    """An images table of four scenes."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number}.png" for number in range(4)]
    for number, name in enumerate(names):
        Image.fromarray(scene(number)).save(folder / name)
    return Images(
        image_id=names,
        dataset=["drawn"] * 4,
        file=names,
        width=[160] * 4,
        height=[120] * 4,
        digest=["-"] * 4,
    )


def counted_forwards(monkeypatch, detector):
    """A list that gets the number of images of each run of the network on undisturbed images."""
    counts = []
    detection = type(detector).detection

    def count(self, prepared):
        counts.append(len(prepared))
        return detection(self, prepared)

    monkeypatch.setattr(type(detector), "detection", count)
    return counts


@pytest.mark.parametrize("adapter", slow_but(("yolo",), list(PROPOSALS)))
def test_the_files_are_those_of_passes_that_run_by_themselves(adapter, tmp_path, monkeypatch):
    detector = create(adapter)
    separate = World(tmp_path / "separate", detector)
    separate.infer(shared=False, proposals=True)
    separate.infer_passes()

    counts = counted_forwards(monkeypatch, detector)
    together = World(tmp_path / "together", detector)
    together.infer(shared=True, proposals=True)
    lines = together.infer_passes()

    # The splits have the same images: the regions of one are copied, and its passes run for it.
    assert sum(counts) == 4 + 4
    assert "perturbed/near: unchanged" in lines
    assert "dropout/near: unchanged" in lines
    assert together.outputs() == separate.outputs()


def test_with_worker_processes_the_files_are_the_same(tmp_path):
    detector = create("yolo")
    together = World(tmp_path / "here", detector)
    together.infer(shared=True)
    with_worker = World(tmp_path / "worker", detector, params=replace(PARAMS, workers=1))
    with_worker.infer(shared=True)
    assert with_worker.outputs() == together.outputs()


def test_an_interrupted_forward_pass_resumes_and_ends_in_the_same_bytes(tmp_path, monkeypatch):
    params = replace(PARAMS, shard_images=2)
    whole = World(tmp_path / "whole", create("yolo"), params=params)
    whole.infer(shared=True)

    detector = create("yolo")
    resumed = World(tmp_path / "resumed", detector, params=params)
    detection = type(detector).detection
    calls = []

    def interrupt(self, prepared):
        calls.append(len(prepared))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return detection(self, prepared)

    monkeypatch.setattr(type(detector), "detection", interrupt)
    with pytest.raises(KeyboardInterrupt):
        resumed.infer(shared=True)
    resumed.infer(shared=True)
    # Two images before the interruption, two that it ended, and these two again.
    assert calls == [2, 2, 2]
    assert resumed.outputs() == whole.outputs()


def test_a_pass_that_is_there_is_not_written_with_the_regions(tmp_path):
    world = World(tmp_path, create("yolo"))
    world.infer(shared=True)
    world.infer_passes()
    other = World(tmp_path, create("yolo", score_threshold=0.001))
    other.infer(shared=True)
    assert "dropout/near: 2 regions" not in other.infer_passes()
    assert all(line.endswith(": unchanged") for line in other.infer_passes())


def test_a_pass_without_usable_values_leaves_the_regions_complete(tmp_path, monkeypatch):
    alone = World(tmp_path / "alone", create("yolo"))
    alone.infer(shared=False)

    def fail(self, detector, replay, image_ids):
        raise DataError("values that are not finite")

    monkeypatch.setattr(DropoutPass, "after_detection", fail)
    world = World(tmp_path / "world", create("yolo"))
    world.infer(shared=True)
    assert content(world.folder / "regions") == content(alone.folder / "regions")
    assert not list((world.folder / "passes/dropout").iterdir())
    with pytest.raises(DataError, match="images cannot be used"):
        world.infer_passes()


def test_a_pass_that_the_network_cannot_do_is_refused_before_any_image_is_read(
    tmp_path, monkeypatch
):
    detector = create("yolo")
    counts = counted_forwards(monkeypatch, detector)
    world = World(tmp_path, detector, {"dropout": {"where": ["no.such"]}})
    with pytest.raises(ParameterError, match=r"parameter 'where': .* no module 'no\.such'"):
        world.infer(shared=True)
    assert counts == []


def test_a_loss_that_needs_the_training_regions_is_not_shared(tmp_path):
    entries = {"perturbed": {"kind": "perturb", "loss": "mahalanobis"}}
    world = World(tmp_path, create("faster_rcnn"), entries)
    world.infer(shared=True)
    assert not (tmp_path / "passes").exists()
