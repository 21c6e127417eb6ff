"""Passes over the regions of a run: streamed, resumed, and aligned with the run's own regions."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic.dataclasses import dataclass
from tests.images.speckles import SMALL, Speckles, content, draw

from farther import detectors
from farther.detectors.passes import Pass, infer_passes, read_passes, register_pass
from farther.detectors.passes.base import PASSES
from farther.detectors.split_inference import infer_splits
from farther.errors import DataError, ParameterError
from farther.incremental.keyed import EMPTY
from farther.naming.registry import STRICT
from farther.tables import RegionsFolder


@dataclass(config=STRICT, kw_only=True)
class Doubled(Pass):
    """Logits times a factor; boxes and scores as another machine rounds them."""

    factor: float = 2.0

    def forward(self, detector, prepared, image_ids):
        regions = detector.forward(prepared, image_ids)
        entropy = np.full(len(regions), 0.5)
        shifted = {"box": regions.box + 1e-3, "score": regions.score - 1e-5}
        return regions.with_columns(
            logits=regions.logits * self.factor, predictive_entropy=entropy, **shifted
        )


@pytest.fixture(scope="module", autouse=True)
def doubled():
    """The kind of pass `doubled`, for the tests of this file."""
    register_pass("doubled")(Doubled)
    yield
    del PASSES._classes["doubled"]


class World:
    """A run's own regions in two splits, and its passes: `passes(entries)` returns the log."""

    def __init__(self, folder):
        self.splits = folder / "splits"
        self.own = folder / "regions"
        self.out = folder / "passes"
        self.work = folder / "work"
        self.root = folder / "drawn"
        self.names = None
        for split, count in (("near", 7), ("test", 13)):
            images = draw(self.root, 13)[np.arange(count)]
            images.write(self.splits / split / "images.parquet")
        infer_splits(
            Speckles(),
            self.splits,
            {"drawn": self.root},
            self.own,
            folder / "own-work",
            SMALL,
            progress=False,
            log=lambda _: None,
        )

    def passes(self, entries, detector=None, params=SMALL):
        lines = []
        infer_passes(
            detector or Speckles(),
            read_passes("run", entries),
            self.splits,
            {"drawn": self.root},
            self.own,
            self.out,
            self.work,
            params,
            classes=self.names,
            progress=False,
            log=lines.append,
        )
        return lines


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


ENTRIES = {"doubled": None, "tripled": {"kind": "doubled", "factor": 3}}


def test_rows_are_those_of_the_run_with_the_columns_of_the_pass(world):
    lines = world.passes(ENTRIES)
    assert lines == [
        "doubled/near: 9 regions",
        "doubled/test: 18 regions",
        "tripled/near: 9 regions",
        "tripled/test: 18 regions",
    ]
    own = RegionsFolder(world.own / "test")
    tripled = RegionsFolder(world.out / "tripled/test")
    for own_batch, tripled_batch in zip(own.batches(), tripled.batches(), strict=True):
        for name in ("image_id", "region_id", "box", "score", "label"):
            assert tripled_batch.frame[name].equals(own_batch.frame[name])
        np.testing.assert_allclose(tripled_batch.logits, 3 * own_batch.logits)
    assert tripled.header.detector["pass"] == {"kind": "doubled", "factor": 3}
    assert tripled.has("predictive_entropy")


def test_splits_can_be_left_out(world):
    assert world.passes({"doubled": {"skip": ["near"]}}) == ["doubled/test: 18 regions"]
    assert world.passes({"doubled": None}) == ["doubled/near: 9 regions", "doubled/test: unchanged"]


def test_only_what_changed_runs_again(world):
    world.passes(ENTRIES)
    changed = {"doubled": None, "tripled": {"kind": "doubled", "factor": 4}}
    assert world.passes(changed)[:2] == ["doubled/near: unchanged", "doubled/test: unchanged"]
    assert world.passes({"doubled": None})[:2] == ["tripled/near: removed", "tripled/test: removed"]
    assert world.passes(None)[-1] == "doubled/test: removed"
    assert [file.name for file in world.out.iterdir()] == [EMPTY]


def test_an_interrupted_pass_resumes_and_ends_in_the_same_bytes(world, tmp_path):
    world.passes({"doubled": None})
    whole = content(world.out)
    world.passes(None)
    with pytest.raises(KeyboardInterrupt):
        world.passes({"doubled": None}, Speckles(stop_after=14))
    detector = Speckles()
    world.passes({"doubled": None}, detector)
    assert 0 < detector.seen < 20
    assert content(world.out) == whole


def test_a_run_without_passes_has_an_empty_folder(world):
    world.passes(None)
    assert world.out.is_dir()


def test_other_detections_than_the_stored_ones_are_refused(world):
    class Shifted(Speckles):
        def answer(self, mean, image_id):
            regions = super().answer(mean, image_id)
            return regions.with_columns(box=regions.box + 1)

    with pytest.raises(DataError, match="the detector finds other objects than are stored"):
        world.passes({"doubled": None}, Shifted())


def test_other_names_of_the_classes_do_not_repeat_a_pass(world):
    world.passes({"doubled": None})
    world.names = {"dog": "hound"}
    assert all(line.endswith(": unchanged") for line in world.passes({"doubled": None}))
    assert RegionsFolder(world.out / "doubled/test").classes == ("hound", "cat")


def test_imported_detections_have_no_passes(world, tmp_path):
    imported = detectors.create("coco_results", weights=tmp_path, classes=["dog"])
    with pytest.raises(ParameterError, match="'doubled' needs a network, but coco_results imports"):
        world.passes({"doubled": None}, imported)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"drop": {}}, "detectors.run.passes.drop: unknown kind of pass 'drop'"),
        (
            {"doubled": {"factr": 2}},
            "detectors.run.passes.doubled: .*unknown parameter 'factr'. Known: skip, factor",
        ),
    ],
)
def test_an_unknown_kind_or_parameter_is_refused_with_its_place(entries, message):
    with pytest.raises(ParameterError, match=message):
        read_passes("run", entries)


def test_worker_processes_give_the_same_rows(world):
    world.passes({"doubled": None})
    before = content(world.out / "doubled")
    world.passes(None)
    world.passes({"doubled": None}, params=replace(SMALL, workers=1))
    assert content(world.out / "doubled") == before
