import subprocess
import sys

import pytest
import torch

from farther.detectors.networks.detection import autocast
from farther.images.device import float32_products, inference_mode


def tf32() -> tuple[bool, bool]:
    """Whether GPUs take TF32 for convolutions, and for products of matrices."""
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_gpus_compute_float32_with_all_its_digits_and_tf32_where_it_is_asked_for():
    before = tf32()
    with inference_mode():
        assert tf32() == (False, False)
        assert torch.is_inference_mode_enabled()
        with autocast(torch.device("cpu"), "tf32"):
            assert tf32() == (True, False)
            with autocast(torch.device("cpu"), "float32"):
                assert tf32() == (False, False)
            assert tf32() == (True, False)
        assert tf32() == (False, False)
    assert tf32() == before


def test_what_was_set_before_is_set_again_after_an_error():
    before = tf32()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with float32_products():
            assert tf32() == (False, False)
            raise KeyError
    except KeyError:
        assert tf32() == (before[0], True)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before[1]


#: Computes a gradient; prints whether workers can compute one then.
GRADIENT = """
import torch
from farther.images.device import workers_compute_gradients
value = torch.ones(3, requires_grad=True)
function = {function}
function(value).backward()
print(workers_compute_gradients())
"""
FUNCTIONS = {
    "plain": ("torch.sum", "True"),
    "compiled": ("torch.compile(torch.sum, backend='aot_eager')", "False"),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_workers_of_a_process_that_used_autograd_beside_a_device_compute_no_gradients(name):
    function, expected = FUNCTIONS[name]
    program = GRADIENT.format(function=function)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [expected], done.stderr
