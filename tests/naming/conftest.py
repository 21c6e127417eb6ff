"""The regions of the methods' tests: fixture `make`."""

from tests.methods.conftest import make as make
