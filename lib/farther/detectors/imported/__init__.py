"""Detections of other programs: read from files, checked, and assigned to images."""

from farther.detectors.imported.base import DetectionsSource, Imported
from farther.detectors.imported.images import BenchmarkImage, Scopes
from farther.detectors.imported.splits import check_import, import_splits

__all__ = [
    "BenchmarkImage",
    "DetectionsSource",
    "Imported",
    "Scopes",
    "check_import",
    "import_splits",
]
