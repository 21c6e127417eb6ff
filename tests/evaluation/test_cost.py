"""Costs of methods per image."""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tests.detectors.test_passes import Doubled, doubled  # noqa: F401, a fixture of this file as well
from tests.images.speckles import SMALL, Speckles, draw
from tests.support.clock import calls_take

from farther import methods
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.settings import ProposalSelection
from farther.detectors.split_inference import infer_splits
from farther.evaluation import cost
from farther.evaluation.cost import (
    CostParams,
    RunFolders,
    count_methods,
    count_passes,
    time_methods,
    time_network,
    update,
)
from farther.scoring.entries import read_entry
from farther.tables import Images
from farther.tables.documents import write_json

ENTRIES = [
    read_entry("msp", {}),
    read_entry("again", {"method": "energy", "pass": "doubled"}),
    read_entry("vos", {}),
]


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    """Functions that time a run with a pass, `doubled`; what is counted of it; and its folder."""
    folder = tmp_path_factory.mktemp("costs")
    roots = {"drawn": folder / "drawn"}
    draw(roots["drawn"], 13).write(folder / "splits/test/images.parquet")
    folders = RunFolders(folder / "regions", folder / "passes", folder / "fitted")
    places = (folder / "splits", roots)
    infer_splits(
        Speckles(),
        *places,
        folders.regions,
        folder / "work",
        SMALL,
        progress=False,
        log=lambda _: None,
    )
    passes = read_passes("run", {Doubled.name: None})
    others = (folders.regions, folders.passes, folder / "work")
    infer_passes(Speckles(), passes, *places, *others, SMALL, progress=False, log=lambda _: None)
    methods.create("msp").save(folders.fitted / "msp")
    methods.create("energy").save(folders.fitted / "again")
    refused = {
        **methods.base.describe(methods.create("vos")),
        "state": {},
        "not_applicable": "no head",
    }
    write_json(folders.fitted / "vos/method.json", refused)
    images = Images.read(folder / "splits/test/images.parquet")

    def of(detector, params, proposals=None, passes=passes):
        return time_network(
            detector, passes, proposals or {}, images, roots, folders, params, SMALL
        )

    counted = {"passes": count_passes(passes), "methods": count_methods(ENTRIES, folders, "test")}
    return of, partial(time_methods, ENTRIES, folders, "test"), counted, folder


def test_detector_passes_and_methods_have_times(costs, monkeypatch):
    time_run, time_scoring, *_ = costs
    # Two tries each, of which the faster one counts: the detector takes 1 s, then the pass 3 s, for
    # four images.
    calls_take(monkeypatch, [2.0, 1.0, 3.0, 4.0])
    times = time_run(Speckles(), CostParams(images=4))
    assert times["detector"] == 250.0
    assert times["passes"] == {"doubled": 500.0}
    # One try each, for 6 of the 18 regions in 13 images.
    calls_take(monkeypatch, [1.3, 2.6])
    assert time_scoring() == pytest.approx({"msp": 300.0, "again": 600.0})


@pytest.mark.parametrize(("gpu", "seconds"), [(False, 2.0), (True, 7.0)])
def test_times_are_those_of_one_core_but_by_the_clock_beside_a_gpu(monkeypatch, gpu, seconds):
    core = iter([1.0, 3.0])
    clock = iter([1.0, 8.0])
    clocks = SimpleNamespace(process_time=partial(next, core), perf_counter=partial(next, clock))
    monkeypatch.setattr(cost, "time", clocks)
    monkeypatch.setattr(cost, "has_gpu", lambda: gpu)
    assert cost.timed(lambda: "returned") == (seconds, "returned")


def test_a_pass_that_is_faster_than_the_detector_takes_no_further_time(costs, monkeypatch):
    calls_take(monkeypatch, [2.0, 2.0, 1.0, 1.0])
    assert costs[0](Speckles(), CostParams(images=4))["passes"] == {"doubled": 0.0}


def test_passes_are_counted_and_methods_name_theirs(costs):
    counted = costs[2]
    assert counted["passes"] == {"doubled": {"forward": 1, "backward": 0}}
    assert {name: of["passes"] for name, of in counted["methods"].items()} == {
        "msp": {},
        "again": {"doubled": 1.0},
    }


@pytest.mark.parametrize(("split", "images"), [("test", 13), ("one", 1)])
def test_bytes_are_those_of_the_columns_that_a_method_reads(costs, split, images):
    folder, stored = costs[-1], 0
    Speckles().answer(np.array([3.0, 100, 50]), "image 3").write(folder / "regions/one")
    counted = count_methods(
        ENTRIES[:1], RunFolders(folder / "regions", folder / "passes", folder / "fitted"), split
    )
    for shard in (folder / "regions" / split).glob("*.parquet"):
        group = pq.read_metadata(shard).row_group(0)
        columns = [group.column(n) for n in range(group.num_columns)]
        stored += sum(
            column.total_compressed_size for column in columns if "logits" in column.path_in_schema
        )
    assert counted["msp"]["bytes"] == pytest.approx(stored / images)


def test_only_what_has_another_key_than_the_earlier_times_is_measured(costs, monkeypatch):
    calls_take(monkeypatch, itertools.repeat(1.3))
    of, methods, *_ = costs
    network, none = (
        partial(of, Speckles(), CostParams(images=1)),
        partial(pytest.fail, "the network is as before"),
    )
    keys = {"": "a", "msp": "b", "again": "c"}
    before = {
        "keys": keys,
        "detector": 7.0,
        "passes": {},
        "proposals": {},
        "methods": {"msp": 9.0, "again": -1.0},
    }
    assert update(before, keys, none, none) is before
    found = update(before, keys | {"again": "d"}, none, methods)
    assert (found["detector"], found["methods"]["msp"], found["keys"]["again"]) == (7.0, 9.0, "d")
    assert found["methods"]["again"] == pytest.approx(300)
    assert update(before, keys | {"": "z"}, network, methods)["detector"] == pytest.approx(1300)
    assert update(None, keys, network, methods)["keys"] == keys


def test_proposals_are_timed_beyond_the_detector(costs, monkeypatch):
    class Proposing(Speckles):
        def forward_proposals(self, prepared, image_ids, wanted):
            asked.append((image_ids, list(wanted.values())))
            return self.forward(prepared, image_ids), None

    selection, asked = ProposalSelection(), []
    # Two tries each of the detector, the pass and the proposals, for two images.
    calls_take(monkeypatch, [1.0, 1.0, 2.0, 2.0, 5.0, 5.0])
    found = costs[0](Proposing(), CostParams(images=2), {"rpn": selection})
    assert found["proposals"] == {"rpn": 2000.0}
    assert (["0", "1"], [selection]) in asked
    assert costs[0](None, CostParams(), {"rpn": selection})["proposals"] == {"rpn": None}


def test_imported_detections_have_no_times(costs):
    found = costs[0](None, CostParams())
    assert found["detector"] is None
    assert found["passes"] == {"doubled": None}


def test_the_time_of_a_detector_is_that_of_detecting_in_every_image(costs):
    seen = []

    class Watched(Speckles):
        def forward(self, prepared, image_ids):
            seen.extend(image_ids)
            return super().forward(prepared, image_ids)

    costs[0](Watched(), CostParams(images=3), passes={})
    assert set(seen) == {"0", "1", "2"}


@pytest.mark.parametrize("needs_gradients", [False, True])
def test_the_time_of_a_pass_is_that_of_looking_again_at_every_image(costs, needs_gradients):
    seen = set()

    class Watched(Doubled):
        def forward(self, detector, prepared, image_ids):
            seen.update((name, torch.is_inference_mode_enabled()) for name in image_ids)
            return super().forward(detector, prepared, image_ids)

    Watched.needs_gradients = needs_gradients
    costs[0](Speckles(), CostParams(images=3), passes={"doubled": Watched()})
    assert seen == {(name, not needs_gradients) for name in "012"}


def test_the_time_of_scoring_some_regions_stands_for_all_of_them(costs, monkeypatch):
    monkeypatch.setattr(cost, "REGIONS", 3)
    monkeypatch.setattr(cost, "timed", lambda call: (0.5, call()))
    # Half a second for 3 of the 18 regions in 13 images.
    assert costs[1]()["msp"] == pytest.approx(500 * 18 / 3 / 13)


def test_images_are_spread_over_the_split(costs):
    seen = []

    class Watched(Speckles):
        def prepare(self, image):
            seen.append(int(image[0, 0, 0]))
            return super().prepare(image)

    costs[0](Watched(), CostParams(images=3))
    assert set(seen) == {0, 6, 12}
