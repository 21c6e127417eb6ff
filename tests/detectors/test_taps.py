"""Activations of inner modules that are kept or replaced."""

import pytest
import torch
from torch import nn

from farther.detectors.networks.taps import Taps, find_module, recorded_calls, replaced_outputs
from farther.detectors.settings import Layers, Pooling
from farther.errors import ParameterError

IMAGES = torch.arange(2 * 2 * 3 * 4.0).reshape(2, 2, 3, 4)


class Network(nn.Module):
    """The identity, then a layer that changes its input in place; `unused` never runs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Identity()
        self.second = nn.ReLU(inplace=True)
        self.unused = nn.Identity()

    def forward(self, x):
        return self.second(self.first(-x))


def test_outputs_are_kept_before_a_later_layer_changes_them_in_place():
    network = Network()
    with Taps(network, Layers(latents=("first",))) as taps:
        network(IMAGES.clone())
    assert torch.equal(taps.map_of("first"), -IMAGES)
    columns = taps.over_images(2)
    assert torch.equal(columns["latent.first"], -IMAGES.mean(dim=(2, 3)))


def test_each_block_forgets_the_outputs_of_the_last_and_hooks_end_with_it():
    network = Network()
    taps = Taps(network, Layers(latents=("first",)))
    with taps:
        network(IMAGES.clone())
    network(torch.zeros(1, 2, 3, 4))  # outside of a block
    assert torch.equal(taps.map_of("first"), -IMAGES)
    with taps:
        pass
    with pytest.raises(ParameterError, match="no image passes through that module, 'first'"):
        taps.map_of("first")


def test_maps_with_channels_last_have_the_same_means():
    network = Network()
    layers = Layers(latents=("first",))
    boxes = [torch.tensor([[0.0, 0, 40, 30]])] * 2
    columns = []
    for channels_last, images in ((False, IMAGES), (True, IMAGES.permute(0, 2, 3, 1))):
        with Taps(network, layers, channels_last=channels_last) as taps:
            network(images.clone())
        over_boxes = taps.over_boxes(boxes, (30, 40), Pooling(size=2, sampling=2))
        columns.append((taps.over_images(2)["latent.first"], over_boxes["latent.first"]))
    torch.testing.assert_close(columns[0], columns[1])


def test_an_output_of_another_shape_is_refused():
    network = Network()
    with Taps(network, Layers(latents=("first",)), "layers") as taps:
        network(torch.zeros(2, 3))
    with pytest.raises(
        ParameterError, match=r"parameter 'layers': .* for 2 images is \(2, 3\), not"
    ):
        taps.over_boxes([torch.zeros(0, 4)] * 2, (8, 8), Pooling())
    with pytest.raises(ParameterError, match=r"for 5 images is \(2, 3\)"):
        taps.over_images(5)


def test_calls_have_the_first_input_and_the_output_of_the_last_call():
    network = Network()
    with recorded_calls([network.first, network.unused]) as calls:
        network(IMAGES.clone())
        network.first(torch.ones(1))
    assert calls.keys() == {network.first}
    first_input, output = calls[network.first]
    assert torch.equal(first_input, torch.ones(1))
    assert torch.equal(output, torch.ones(1))


def test_modules_answer_in_a_block_only_and_lists_are_copied():
    module = nn.Identity()
    with replaced_outputs({module: [1, 2]}):
        module("anything").pop()
        assert module() == [1, 2]
    assert module(3) == 3
    assert "forward" not in vars(module)


def test_an_unknown_module_is_an_error_that_lists_known_ones():
    with pytest.raises(ParameterError, match=r"'where': .* no module 'x'. Some are first, second"):
        find_module(Network(), "x", "where")
