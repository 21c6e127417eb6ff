"""Scores that say how in-distribution a region is. Higher means more in-distribution.

A method is a dataclass of its parameters, one a file, registered under the name that users write.
`farther.methods.base` says what it must have; adding one is adding a file.

>>> method = create("knn", k=5)
>>> method.k
5
"""

from typing import Any

from farther.methods.base import METHODS, FitError, Method
from farther.methods.loading import load, not_applicable
from farther.methods.tau import threshold

__all__ = ["FitError", "Method", "create", "get", "load", "names", "not_applicable", "threshold"]


def create(name: str, **params: Any) -> Method:
    """A method, its parameters checked.

    Args:
        name: A name of `names`.
        **params: Its parameters, by name; the defaults are the paper's.

    Raises:
        ParameterError: the name or a parameter is unknown, or a value does not fit; the message
            lists what is known.
    """
    return METHODS.create(name, **params)


def names() -> list[str]:
    """All known names, sorted."""
    return METHODS.names()


def get(name: str) -> type[Method]:
    """The class behind a name.

    Raises:
        ParameterError: the name is unknown; the message lists the known ones.
    """
    return METHODS.get(name)
