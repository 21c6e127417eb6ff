"""Detections of other programs: read from files, checked, and assigned to images."""

from farther.detectors.imported.base import Imported, Source
from farther.detectors.imported.placing import Scopes, check_import, import_splits

__all__ = ["Imported", "Scopes", "Source", "check_import", "import_splits"]
