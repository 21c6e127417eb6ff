"""The division of images into shards and batches, and the parameters of the engine."""

from dataclasses import replace

import pytest
from tests.images.speckles import SMALL, Speckles, World

from farther.errors import ParameterError
from farther.images.plan import StreamParams
from farther.naming.registry import build


def test_images_of_similar_shape_share_a_batch(tmp_path):
    seen = []

    class Watched(Speckles):
        def forward(self, prepared, image_ids):
            seen.append(sorted(int(i.split()[1]) for i in image_ids))
            return super().forward(prepared, image_ids)

    World(tmp_path).run("a", Watched(), replace(SMALL, shard_images=12, batch_size=4))
    upright, square, wide = [1, 4, 7, 10], [2, 5, 8, 11], [0, 3, 6, 9]
    assert seen[:3] == [upright, square, wide]


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", 0), ("workers", -1), ("shard_images", 0), ("max_failures", 1.5)],
)
def test_impossible_settings_are_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=f"inference: parameter '{name}'"):
        build(StreamParams, "inference", {name: value})


def test_unknown_settings_are_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match="Known: batch_size, workers"):
        build(StreamParams, "inference", {"batchsize": 2})


def test_a_network_in_this_process_has_a_core_left_and_there_are_never_more_than_8_workers(
    monkeypatch,
):
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 4)
    assert StreamParams().processes() == 3
    assert StreamParams().processes(cores_left=0) == 4
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 64)
    assert StreamParams().processes() == 8
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 1)
    assert StreamParams().processes() == 0


def test_a_single_core_has_no_worker_that_this_process_would_wait_for(monkeypatch):
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 1)
    assert StreamParams().processes(cores_left=0) == 0
    assert StreamParams(workers=1).processes(cores_left=0) == 1
