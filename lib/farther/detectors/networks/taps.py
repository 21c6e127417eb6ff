"""Activations of inner modules, kept during a pass, and their averages and Gram matrices over images or boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from farther.detectors.networks.grams import box_gram_rows, gram_rows
from farther.detectors.networks.pooling import box_means
from farther.detectors.settings import Layers, Pooling
from farther.errors import ParameterError
from farther.tables.regions import GRAM, LAYER


class Taps:
    """Keeps the outputs of inner modules while a `with` block runs; each pass replaces those of the one before.

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
        self._layers, self._parameters = layers, {LAYER: parameter, GRAM: "grams"}
        self._channels_last = channels_last
        self._modules = {name: find_module(network, name, parameter) for name in layers.latents}
        self._modules |= {name: find_module(network, name, "grams") for name in layers.grams}
        self._kept: dict[str, Any] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        for name, module in self._modules.items():
            keep = lambda _module, _given, output, name=name: self._kept.update(
                {name: _copy(output)}
            )  # noqa: E731
            self._hooks.append(module.register_forward_hook(keep))
        self._kept.clear()
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def over_images(self, count: int) -> dict[str, Tensor]:
        """The columns of B images: means, and rows of Gram matrices, over the cells of each map, or over its tokens.

        Args:
            count: B, the number of images of the last pass.

        Returns:
            Column → shape (B, C) of means, (B, P · C) of Gram matrices, float32.

        Raises:
            ParameterError: a module's output is not one of up to two dimensions of cells per image.
        """
        powers = self._layers.powers
        return self._columns(
            lambda name, prefix: self._cells(name, prefix, count).mean(2),
            lambda name, prefix: gram_rows(self._cells(name, prefix, count), powers),
        )

    def over_boxes(
        self, boxes: Sequence[Tensor], size: tuple[int, int], pooling: Pooling
    ) -> dict[str, Tensor]:
        """The columns of boxes: means, as the column `latent` has them (FMIYC, Appendix F.2.4), and Gram matrices.

        Args:
            boxes: Corners of each image's boxes in pixels of the network's input, (N_i, 4).
            size: Height and width of the network's input, padding included.
            pooling: Of each box; its levels and its place are not used.

        Returns:
            Column → shape (ΣN_i, C) of means, (ΣN_i, P · C) of Gram matrices, float32.

        Raises:
            ParameterError: a module's output is not a map per image.
        """
        powers = self._layers.powers

        def pooled(name: str, prefix: str, pool: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            maps = self._output(name, prefix)
            if not isinstance(maps, Tensor) or maps.ndim != 4 or len(maps) != len(boxes):
                raise self._refused(name, prefix, len(boxes), "(images, channels, rows, columns)")
            maps = (maps.permute(0, 3, 1, 2) if self._channels_last else maps).float()
            (height, width), (rows, columns) = size, maps.shape[2:]
            scale = maps.new_tensor([columns / width, rows / height] * 2)
            return torch.cat(
                [pool(of_image, of * scale) for of_image, of in zip(maps, boxes, strict=True)]
            )

        return self._columns(
            lambda name, prefix: pooled(
                name, prefix, lambda level, cells: box_means(level, cells, pooling)
            ),
            lambda name, prefix: pooled(
                name, prefix, lambda level, at: box_gram_rows(level, at, powers, pooling)
            ),
        )

    def map_of(self, name: str) -> Tensor:
        """The output of a module of `latents` in the last pass."""
        return self._output(name, LAYER)

    def _columns(
        self, mean: Callable[[str, str], Tensor], gram: Callable[[str, str], Tensor]
    ) -> dict[str, Tensor]:
        """All columns, from functions of a module's name and the beginning of its column's name."""
        means = {f"{LAYER}{name}": mean(name, LAYER) for name in self._layers.latents}
        return means | {f"{GRAM}{name}": gram(name, GRAM) for name in self._layers.grams}

    def _cells(self, name: str, prefix: str, count: int) -> Tensor:
        """The output of a module for `count` images, shape (count, C, cells), float32."""
        found = self._output(name, prefix)
        if not isinstance(found, Tensor) or found.ndim not in (2, 3, 4) or len(found) != count:
            raise self._refused(
                name, prefix, count, "(images, …) with up to two dimensions of cells"
            )
        values = found.float()
        if values.ndim == 4:
            return (
                values.flatten(1, 2).transpose(1, 2) if self._channels_last else values.flatten(2)
            )
        return values.transpose(1, 2) if values.ndim == 3 else values[:, :, None]

    def _output(self, name: str, prefix: str) -> Any:
        if name not in self._kept:
            problem = f"no image passes through that module, {name!r}; name another one"
            raise ParameterError(f"parameter {self._parameters[prefix]!r}: {problem}")
        return self._kept[name]

    def _refused(self, name: str, prefix: str, count: int, wanted: str) -> ParameterError:
        found = self._kept[name]
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        problem = f"the output of {name!r} for {count} images is {shape}, not {wanted}"
        return ParameterError(
            f"parameter {self._parameters[prefix]!r}: {problem}; name another module"
        )


@contextmanager
def kept_calls(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, tuple[Tensor, Any]]]:
    """The first input and the output of each module's last call in the block."""
    kept: dict[nn.Module, tuple[Tensor, Any]] = {}

    def keep(module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        kept[module] = args[0] if args else next(iter(kwargs.values())), _own_list(output)

    hooks = [module.register_forward_hook(keep, with_kwargs=True) for module in modules]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def answering(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Lets modules return these outputs in a block, whatever their inputs, without computing them."""
    before = {module: vars(module).get("forward") for module in outputs}
    try:
        for module, output in outputs.items():
            module.forward = lambda *_, output=output, **__: _own_list(output)
        yield
    finally:
        for module, forward in before.items():
            if forward is None:
                del module.forward
            else:
                module.forward = forward


def _own_list(output: Any) -> Any:
    """The output; a list as a list of its own, from which a network may take items."""
    return list(output) if type(output) is list else output


def find_module(network: nn.Module, name: str, parameter: str) -> nn.Module:
    """A module by its name; a ParameterError for an unknown one names the parameter and some known modules."""
    try:
        return network.get_submodule(name)
    except AttributeError:
        outer = [known for known, _ in network.named_modules() if known and known.count(".") < 2]
        listed = ", ".join(outer[:40]) + (", …" if len(outer) > 40 else "")
        problem = f"the network has no module {name!r}. Some are {listed}"
        raise ParameterError(f"parameter {parameter!r}: {problem}") from None


def _copy(output: Any) -> Any:
    """A copy of an output, or of its first part: a later layer may write into the same memory."""
    while isinstance(output, tuple | list) and len(output):
        output = output[0]
    return output.clone() if isinstance(output, Tensor) else output
