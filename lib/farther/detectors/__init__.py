"""Detectors: adapters that convert images to the regions table.

Example:
    >>> import farther.detectors
    >>> "faster_rcnn" in farther.detectors.names()
    True
"""

import os
from collections.abc import Mapping
from typing import Any

from farther.detectors.adapter import Adapter, register, registry
from farther.detectors.base import Detector

# Hugging Face's libraries report their use unless this is set before they are imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

create = registry.create
get = registry.get
names = registry.names

__all__ = ["Adapter", "Detector", "create", "get", "names", "of_entry", "register"]


def of_entry(entry: Mapping[str, Any]) -> Any:
    """The adapter of an entry of the section `detectors`.

    Raises:
        ParameterError: the adapter or a parameter is unknown, or a value does not fit.
    """
    params = dict(entry.get("params") or {})
    if "weights" in entry:
        params["weights"] = entry["weights"]
    return create(str(entry.get("adapter", "")), **params)
