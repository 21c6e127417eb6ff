"""Activations of inner modules, kept during a pass and averaged over images or over boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from farther.detectors.networks.pooling import Pooling, box_means
from farther.errors import ParameterError

#: A parameter of adapters that names inner modules: the column `latent`, or the further columns `latent.<name>`.
LATENT, LATENTS = "latent", "latents"


class Taps:
    """Keeps the outputs of inner modules while a `with` block runs; each pass replaces those of the one before.

    Args:
        network: The network.
        names: Names of its modules, as `named_modules` gives them.
        parameter: Name of the adapter's parameter, in messages.
        channels_last: Maps are (B, h, w, C), not (B, C, h, w).

    Raises:
        ParameterError: the network has no such module.
    """

    def __init__(
        self, network: nn.Module, names: Iterable[str], parameter: str = LATENTS, *, channels_last: bool = False
    ):
        self._parameter, self._channels_last = parameter, channels_last
        self._modules = {name: find_module(network, name, parameter) for name in names}
        self._kept: dict[str, Any] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        for name, module in self._modules.items():
            keep = lambda _module, _given, output, name=name: self._kept.update({name: _copy(output)})  # noqa: E731
            self._hooks.append(module.register_forward_hook(keep))
        self._kept.clear()
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def over_images(self, count: int) -> dict[str, Tensor]:
        """Means per channel over the cells of each map, or over its tokens.

        Args:
            count: Number of images of the last pass.

        Returns:
            Name → shape (count, C), float32.

        Raises:
            ParameterError: a module's output is not one of up to two dimensions of cells per image.
        """
        return {name: self._mean(name, self._output(name), count) for name in self._modules}

    def over_boxes(self, boxes: Sequence[Tensor], size: tuple[int, int], pooling: Pooling) -> dict[str, Tensor]:
        """Means per channel over boxes, as the column `latent` has them (FMIYC, Appendix F.2.4).

        Args:
            boxes: Corners of each image's boxes in pixels of the network's input, (N_i, 4).
            size: Height and width of the network's input, padding included.
            pooling: Of each box; its levels and its place are not used.

        Returns:
            Name → shape (ΣN_i, C), float32.

        Raises:
            ParameterError: a module's output is not a map per image.
        """
        found = {}
        for name in self._modules:
            maps = self._output(name)
            if not isinstance(maps, Tensor) or maps.ndim != 4 or len(maps) != len(boxes):
                raise self._refused(name, maps, len(boxes), "(images, channels, rows, columns)")
            maps = (maps.permute(0, 3, 1, 2) if self._channels_last else maps).float()
            (height, width), (rows, columns) = size, maps.shape[2:]
            scale = maps.new_tensor([columns / width, rows / height] * 2)
            each = [box_means(of_image, of * scale, pooling) for of_image, of in zip(maps, boxes, strict=True)]
            found[name] = torch.cat(each)
        return found

    def _mean(self, name: str, activations: Any, count: int) -> Tensor:
        if not isinstance(activations, Tensor) or activations.ndim not in (2, 3, 4) or len(activations) != count:
            raise self._refused(name, activations, count, "(images, …) with up to two dimensions of cells")
        values = activations.float()
        if values.ndim == 4:
            return values.mean((1, 2) if self._channels_last else (2, 3))
        return values.mean(1) if values.ndim == 3 else values

    def _output(self, name: str) -> Any:
        if name not in self._kept:
            problem = f"no image passes through that module, {name!r}; name another one"
            raise ParameterError(f"parameter {self._parameter!r}: {problem}")
        return self._kept[name]

    def _refused(self, name: str, found: Any, count: int, wanted: str) -> ParameterError:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        problem = f"the output of {name!r} for {count} images is {shape}, not {wanted}"
        return ParameterError(f"parameter {self._parameter!r}: {problem}; name another module")


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


def latent_columns(found: Mapping[str, Tensor], dtype: str) -> dict[str, np.ndarray]:
    """The columns `latent.<name>` of activations averaged by `Taps`."""
    return {f"{LATENT}.{name}": values.float().cpu().numpy().astype(dtype) for name, values in found.items()}
