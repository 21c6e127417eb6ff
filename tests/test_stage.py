"""Messages for errors that a stage or a command expects."""

from __future__ import annotations

import torch

from farther.stage import explained


def test_a_gpu_with_too_little_memory_is_a_message_that_says_what_to_lower():
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the docs.")
    message = explained(error)
    assert message is not None
    assert "(CUDA out of memory. Tried to allocate 2 GiB.)" in message
    assert "`batch_size` in section `inference`" in message
    assert "\n" not in message


def test_other_errors_of_torch_are_not_expected():
    assert explained(RuntimeError("CUDA error: an illegal memory access")) is None
