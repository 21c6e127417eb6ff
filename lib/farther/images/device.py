"""PyTorch's device and settings, for code that must also run without PyTorch."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from farther.errors import ParameterError, first_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Imported in functions: PyTorch, which takes seconds; a classifier of tables needs none.


def torch_device(name: str) -> torch.device:
    """The PyTorch device of a name; "auto" is the first GPU, or else the CPU.

    Raises:
        ParameterError: the device cannot be used on this machine.
    """
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


def workers_compute_gradients() -> bool:
    """Whether worker processes that are started by this one can compute gradients by PyTorch.

    PyTorch refuses that in forked processes where this one has computed a gradient beside a GPU, or
    of a compiled function: its threads of autograd do not survive a fork.
    """
    if sys.platform != "linux":  # workers are not forked
        return True
    trial = multiprocessing.get_context("fork").Process(target=_compute_gradient)
    trial.start()
    trial.join()
    return trial.exitcode == 0


def _compute_gradient() -> None:
    """Ends this process with status 1 if it can compute no gradient."""
    import torch

    torch.set_num_threads(1)
    value = torch.ones(1, requires_grad=True)
    try:
        torch.autograd.grad(value.sum(), value)
    except RuntimeError:
        sys.exit(1)


@contextmanager
def inference_mode() -> Iterator[None]:
    """PyTorch's inference mode, with `float32_products`."""
    torch = sys.modules.get("torch")
    mode = nullcontext() if torch is None else torch.inference_mode()
    with mode, float32_products():
        yield


@contextmanager
def float32_products(*, tf32: bool = False) -> Iterator[None]:
    """Makes PyTorch compute float32 on GPUs with all its digits.

    Does nothing if PyTorch is not imported: then no network uses it.

    Args:
        tf32: Convolutions may use TF32, with 10 bits of mantissa instead of 23, as is PyTorch's
            default.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    convolutions = torch.backends.cudnn
    matrices = torch.backends.cuda.matmul
    convolutions_before = convolutions.allow_tf32
    matrices_before = matrices.allow_tf32
    convolutions.allow_tf32 = tf32
    matrices.allow_tf32 = False
    try:
        yield
    finally:
        convolutions.allow_tf32 = convolutions_before
        matrices.allow_tf32 = matrices_before


@contextmanager
def ordinary_tensors(images: Sequence[Tensor] = ()) -> Iterator[None]:
    """Leaves PyTorch's inference mode for a block.

    Tensors that are made in inference mode cannot take part in the computation of gradients later.

    Args:
        images: Gradients are computed only if one of them requires them.
    """
    import torch

    needs_gradients = any(image.requires_grad for image in images)
    with torch.inference_mode(False), torch.set_grad_enabled(needs_gradients):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits PyTorch to one thread in this process, if it is imported.

    So results are the same bytes as those of worker processes, which use one core each.
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
