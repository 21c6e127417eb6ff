"""Bounds of descriptions of networks, and errors of libraries."""

import pytest
import torch
from torch import nn

from farther.errors import DataError, ParameterError
from farther.images.bounds import COMPUTED, check_description, network_errors, refuse_larger


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"width": 5_000_000}, "model.width"),
        ({"text": {"num_hidden_layers": 257}}, "model.text.num_hidden_layers"),
        ({"sizes": [1, -5_000_000]}, "model.sizes[1]"),
        ({"epsilon": float("nan")}, "model.epsilon"),
        ({"names": ["a"] * 10_001}, "model.names"),
    ],
)
def test_numbers_and_lists_above_their_limit_are_refused_with_their_place(content, field):
    with pytest.raises(DataError) as error:
        check_description("config.json", content, field="model")
    assert (str(error.value.file), error.value.field) == ("config.json", field)


def test_usual_descriptions_pass():
    check_description("config.json", {"layers": 256, "width": 4096, "bias": True, "name": "a"})


def test_a_limit_that_is_given_counts():
    check_description("config.json", {"height": 4096}, 4096)
    with pytest.raises(DataError, match=r"field 'height': expected at most 4,096, found 4097"):
        check_description("config.json", {"height": 4097}, 4096)


def test_a_network_with_more_values_than_bytes_is_refused_without_memory_for_it(tmp_path):
    weights = tmp_path / "weights"
    weights.write_bytes(b"0" * 100)
    small = refuse_larger("config.json", [weights], lambda: nn.Linear(10, 10))
    assert small.weight.is_meta
    side = int(COMPUTED**0.5) + 1
    with pytest.raises(DataError, match=r"config\.json: describes a network of .* have 100 bytes"):
        refuse_larger("config.json", [weights], lambda: nn.Linear(side, side))


def test_a_lack_of_memory_is_no_damage_of_a_checkpoint():
    with pytest.raises(torch.OutOfMemoryError), network_errors("a.pt"):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(MemoryError), network_errors("a.pt"):
        raise MemoryError


def test_an_error_of_a_library_names_the_file():
    with (
        pytest.raises(DataError, match=r"a\.pt: .*cannot be run: RuntimeError: sizes differ"),
        network_errors("a.pt"),
    ):
        raise RuntimeError("sizes differ")
    with (
        pytest.raises(DataError, match=r"a\.pt: .*cannot be built: KeyError"),
        network_errors("a.pt", "built"),
    ):
        raise KeyError("width")


def test_an_error_of_farther_keeps_its_file_or_gets_one():
    with pytest.raises(DataError, match=r"^b\.json: wrong$"), network_errors("a.pt"):
        raise DataError("wrong", file="b.json")
    with (
        pytest.raises(DataError, match=r"^a\.pt: field 'x': wrong$"),
        network_errors("a.pt"),
    ):
        raise DataError("wrong", field="x")
    with pytest.raises(ParameterError, match="unknown"), network_errors("a.pt"):
        raise ParameterError("unknown")
