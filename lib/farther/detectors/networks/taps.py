"""Activations of inner modules, kept during inference, and their means and Gram matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from farther.detectors.networks.grams import box_gram_rows, gram_rows
from farther.detectors.networks.pooling import box_means
from farther.detectors.settings import Layers, Pooling
from farther.errors import ParameterError
from farther.tables.regions import GRAM, LAYER

#: Most modules that a message lists.
LISTED_MODULES = 40


class Taps:
    """Keeps the outputs of inner modules while a `with` block runs; each block forgets the last.

    Args:
        network: The network.
        layers: Its modules.
        parameter: Name of the adapter's parameter that names those of `latents`, in messages.
        channels_last: Maps are (B, h, w, C), not (B, C, h, w).

    Raises:
        ParameterError: the network has no such module.
    """

    def __init__(
        self,
        network: nn.Module,
        layers: Layers,
        parameter: str = "latents",
        *,
        channels_last: bool = False,
    ):
        self._layers = layers
        self._parameters = {LAYER: parameter, GRAM: "grams"}
        self._channels_last = channels_last
        self._modules: dict[str, nn.Module] = {}
        for name in layers.latents:
            self._modules[name] = find_module(network, name, parameter)
        for name in layers.grams:
            self._modules[name] = find_module(network, name, "grams")
        self._outputs: dict[str, Any] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        self._outputs.clear()
        for name, module in self._modules.items():
            self._hooks.append(module.register_forward_hook(self._hook(name)))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def over_images(self, count: int) -> dict[str, Tensor]:
        """The columns of B images: means and Gram matrices over the cells of each map, or tokens.

        Args:
            count: B, the number of images of the last batch.

        Returns:
            Column → shape (B, C) of means, (B, P · C) of Gram matrices, float32.

        Raises:
            ParameterError: a module's output is not one of up to two dimensions of cells per image.
        """
        columns = {}
        for name in self._layers.latents:
            columns[f"{LAYER}{name}"] = self._cells(name, LAYER, count).mean(2)
        for name in self._layers.grams:
            cells = self._cells(name, GRAM, count)
            columns[f"{GRAM}{name}"] = gram_rows(cells, self._layers.powers)
        return columns

    def over_boxes(
        self, boxes: Sequence[Tensor], size: tuple[int, int], pooling: Pooling
    ) -> dict[str, Tensor]:
        """The columns of boxes: means as in the column `latent`, and Gram matrices.

        Args:
            boxes: Corners of each image's boxes in pixels of the network's input, (N_i, 4).
            size: Height and width of the network's input, padding included.
            pooling: Of each box; its levels and its place are not used.

        Returns:
            Column → shape (ΣN_i, C) of means, (ΣN_i, P · C) of Gram matrices, float32.

        Raises:
            ParameterError: a module's output is not a map per image.
        """
        columns = {}
        for name in self._layers.latents:
            maps = self._maps(name, LAYER, len(boxes))
            means = []
            for image_map, cells in zip(maps, _in_cells(boxes, maps, size), strict=True):
                means.append(box_means(image_map, cells, pooling))
            columns[f"{LAYER}{name}"] = torch.cat(means)
        for name in self._layers.grams:
            maps = self._maps(name, GRAM, len(boxes))
            rows = []
            for image_map, cells in zip(maps, _in_cells(boxes, maps, size), strict=True):
                rows.append(box_gram_rows(image_map, cells, self._layers.powers, pooling))
            columns[f"{GRAM}{name}"] = torch.cat(rows)
        return columns

    def map_of(self, name: str) -> Tensor:
        """The last output of a module of `latents`."""
        return self._output(name, LAYER)

    def _hook(self, name: str) -> Any:
        """A forward hook that keeps a module's output under its name."""

        def keep(_module: nn.Module, _args: Any, output: Any) -> None:
            self._outputs[name] = _copy(output)

        return keep

    def _maps(self, name: str, prefix: str, count: int) -> Tensor:
        """The output of a module for `count` images as maps, shape (count, C, h, w), float32."""
        maps = self._output(name, prefix)
        if not isinstance(maps, Tensor) or maps.ndim != 4 or len(maps) != count:
            raise self._refused(name, prefix, count, "(images, channels, rows, columns)")
        if self._channels_last:
            maps = maps.permute(0, 3, 1, 2)
        return maps.float()

    def _cells(self, name: str, prefix: str, count: int) -> Tensor:
        """The output of a module for `count` images, shape (count, C, cells), float32."""
        output = self._output(name, prefix)
        if not isinstance(output, Tensor) or output.ndim not in (2, 3, 4) or len(output) != count:
            expected = "(images, …) with up to two dimensions of cells"
            raise self._refused(name, prefix, count, expected)

        values = output.float()
        if values.ndim == 2:
            return values[:, :, None]
        if values.ndim == 3:
            return values.transpose(1, 2)
        if self._channels_last:
            return values.flatten(1, 2).transpose(1, 2)
        return values.flatten(2)

    def _output(self, name: str, prefix: str) -> Any:
        if name not in self._outputs:
            problem = f"no image passes through that module, {name!r}; name another one"
            raise ParameterError(f"parameter {self._parameters[prefix]!r}: {problem}")
        return self._outputs[name]

    def _refused(self, name: str, prefix: str, count: int, expected: str) -> ParameterError:
        shape = output_shape(self._outputs[name])
        problem = f"the output of {name!r} for {count} images is {shape}, not {expected}"
        return ParameterError(
            f"parameter {self._parameters[prefix]!r}: {problem}; name another module"
        )


def _in_cells(boxes: Sequence[Tensor], maps: Tensor, size: tuple[int, int]) -> list[Tensor]:
    """Boxes of each image in cells of maps (B, C, h, w) instead of pixels of an input of a size."""
    height, width = size
    rows, columns = maps.shape[2:]
    scale = maps.new_tensor([columns / width, rows / height] * 2)
    return [image_boxes * scale for image_boxes in boxes]


@contextmanager
def recorded_calls(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, tuple[Tensor, Any]]]:
    """The first input and the output of each module's last call in the block."""
    calls: dict[nn.Module, tuple[Tensor, Any]] = {}

    def keep(module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        first_input = args[0] if args else next(iter(kwargs.values()))
        calls[module] = (first_input, _own_list(output))

    hooks = [module.register_forward_hook(keep, with_kwargs=True) for module in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def replaced_outputs(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Replaces the outputs of modules in a block; they compute nothing and ignore their inputs."""
    forward_before = {module: vars(module).get("forward") for module in outputs}
    try:
        for module, output in outputs.items():
            module.forward = _constant(output)
        yield
    finally:
        for module, forward in forward_before.items():
            if forward is None:
                del module.forward
            else:
                module.forward = forward


def _constant(output: Any) -> Any:
    """A `forward` that returns an output, whatever its inputs are."""

    def forward(*_args: Any, **_kwargs: Any) -> Any:
        return _own_list(output)

    return forward


def _own_list(output: Any) -> Any:
    """The output; a list is copied, because a network may take items out of it."""
    return list(output) if type(output) is list else output


def find_module(network: nn.Module, name: str, parameter: str) -> nn.Module:
    """A module by its name.

    Raises:
        ParameterError: the network has no such module; names the parameter and some known modules.
    """
    try:
        return network.get_submodule(name)
    except AttributeError:
        pass
    outer = []
    for known, _ in network.named_modules():
        if known and known.count(".") < 2:
            outer.append(known)
    listed = ", ".join(outer[:LISTED_MODULES])
    if len(outer) > LISTED_MODULES:
        listed += ", …"
    problem = f"the network has no module {name!r}. Some are {listed}"
    raise ParameterError(f"parameter {parameter!r}: {problem}")


def output_shape(output: Any) -> str:
    """The shape of a tensor, or the type of something else, for messages."""
    return str(tuple(output.shape)) if isinstance(output, Tensor) else type(output).__name__


def _copy(output: Any) -> Any:
    """A copy of an output, or of its first item: a later layer may write into the same memory."""
    while isinstance(output, tuple | list) and len(output):
        output = output[0]
    return output.clone() if isinstance(output, Tensor) else output
