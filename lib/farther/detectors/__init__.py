"""Detectors: adapters that turn images into the regions table.

Example:
    >>> import farther.detectors
    >>> "faster_rcnn" in farther.detectors.names()
    True
"""

from farther.detectors.base import Adapter, Detector, register, registry

create = registry.create
get = registry.get
names = registry.names

__all__ = ["Adapter", "Detector", "create", "get", "names", "register"]
