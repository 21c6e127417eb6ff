"""Examples of docstrings print arrays as NumPy does by default, whatever was imported before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

#: Read when pytest starts. Ultralytics changes them when a test imports it.
PRINT_OPTIONS = np.get_printoptions()


@pytest.fixture(autouse=True)
def print_options() -> Iterator[None]:
    """NumPy prints as it did when pytest started."""
    with np.printoptions(**PRINT_OPTIONS):
        yield
