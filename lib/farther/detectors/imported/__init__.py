"""Detections made elsewhere: read from files, checked, and put in place by image."""

from farther.detectors.imported.base import Imported, Source
from farther.detectors.imported.placing import import_splits

__all__ = ["Imported", "Source", "import_splits"]
