"""PyTorch's device and settings, for code that must also run without PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from farther.errors import ParameterError, first_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def torch_device(name: str) -> torch.device:
    """The PyTorch device of a name; "auto" is the first GPU, or else the CPU."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ParameterError(
            f"device {name!r} cannot be used here: {first_line(error)}. Use 'auto' or 'cpu'"
        ) from None
    return device


@contextmanager
def inference_mode() -> Iterator[None]:
    """torch's, with `float32_products`."""
    torch = sys.modules.get("torch")
    with nullcontext() if torch is None else torch.inference_mode(), float32_products():
        yield


@contextmanager
def float32_products(*, tf32: bool = False) -> Iterator[None]:
    """Has torch compute float32 on GPUs with all its digits, if the network uses torch: then it is imported by now.

    Of itself torch takes TF32, with 10 bits of mantissa instead of 23, for convolutions; with
    `tf32` it does here, too.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    convolutions, matrices = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, matrices.allow_tf32
    convolutions.allow_tf32, matrices.allow_tf32 = tf32, False
    try:
        yield
    finally:
        convolutions.allow_tf32, matrices.allow_tf32 = before


@contextmanager
def ordinary_tensors(images: Sequence[Tensor] = ()) -> Iterator[None]:
    """Leaves torch's inference mode for a block, which keeps gradients only if one of the images requires them.

    Tensors that are made in inference mode cannot take part in the computation of gradients later.
    """
    import torch

    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(any(image.requires_grad for image in images)),
    ):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps torch to one thread in this process, if the network uses torch: then it has imported it by now.

    Work that is spread over processes on one core each gives the same bytes when there are none.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
