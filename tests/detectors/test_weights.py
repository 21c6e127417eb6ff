"""The one way in which checkpoints are written."""

import os

import pytest
import torch
from safetensors import safe_open

from farther.detectors.networks.weights import (
    as_float32,
    json_field,
    read_metadata,
    read_tensors,
    write_tensors,
)
from farther.errors import DataError


def test_the_order_of_the_metadata_does_not_change_the_bytes(tmp_path):
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor([3])}
    names = [f"field {n}" for n in range(20)]
    for path, order in ((tmp_path / "one", names), (tmp_path / "other", names[::-1])):
        write_tensors(path, tensors, {name: name.upper() for name in order})
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "other").read_bytes()
    places = [content.index(name.upper().encode()) for name in sorted(names)]
    assert places == sorted(places)
    with safe_open(tmp_path / "one", framework="pt") as file:
        assert file.metadata() == {name: name.upper() for name in names}
        assert torch.equal(file.get_tensor("b"), tensors["b"].half())


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_a_file_may_be_read_by_whom_the_umask_lets(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "weights", {"a": torch.zeros(1)}, {})
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == mode


def test_numbers_are_halved_where_they_fit_and_counts_never(tmp_path):
    tensors = {
        "fits": torch.tensor([65504.0]),
        "does not": torch.tensor([65536.0]),
        "count": torch.tensor([70000]),
    }
    write_tensors(tmp_path / "weights", tensors, {})
    stored = read_tensors(tmp_path / "weights")
    assert {name: t.dtype for name, t in stored.items()} == {
        "fits": torch.float16,
        "does not": torch.float32,
        "count": torch.int64,
    }
    for name, t in tensors.items():
        assert torch.equal(stored[name].double(), t.double())
    assert (
        as_float32(stored)["fits"].dtype == torch.float32
        and as_float32(stored)["count"].dtype == torch.int64
    )


@pytest.mark.parametrize("value", [1.0, 1e9])
def test_tied_weights_and_views_are_written_as_they_are_read(value, tmp_path):
    tied = torch.full((2, 3), value)
    tied[0, 1] = 5
    write_tensors(tmp_path / "weights", {"one": tied, "other": tied, "turned": tied.T}, {})
    stored = as_float32(read_tensors(tmp_path / "weights"))
    assert torch.equal(stored["one"], tied) and torch.equal(stored["other"], tied)
    assert torch.equal(stored["turned"], tied.T)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "text").write_text("no tensors here")
    for read in (read_metadata, read_tensors):
        with pytest.raises(DataError, match=r"absent: the file does not exist"):
            read(tmp_path / "absent")
        with pytest.raises(DataError, match=r"text: not a readable safetensors file"):
            read(tmp_path / "text")


def test_a_field_that_is_missing_or_no_json_is_named():
    assert json_field("w", {"classes": '["a"]'}, "classes") == ["a"]
    with pytest.raises(DataError, match="w: field 'classes': the field is missing"):
        json_field("w", {}, "classes")
    with pytest.raises(DataError, match="w: field 'classes': not JSON"):
        json_field("w", {"classes": "["}, "classes")
