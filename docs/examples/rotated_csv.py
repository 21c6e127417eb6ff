"""A CSV file of rotated boxes: image, name, conf, cx, cy, w, h and angle, in degrees clockwise."""

from math import radians
from typing import Any, ClassVar

from farther import register
from farther.detectors.imported.record_files import RecordFiles
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.tables.oriented import envelope_of_rotated


@register("rotated_csv")
class RotatedCSV(RecordFiles):
    """Rotated boxes of our own program, read as the upright boxes around them."""

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*.csv",)
    COLUMNS: ClassVar[dict[str, str]] = {"category_id": "name", "score": "conf"}

    @classmethod
    def recognises(cls, path, id_classes: IdClasses) -> RecognisedFile | None:
        """A file with a column of angles, for `farther init`."""
        return cls.recognised(path, id_classes) if cls.has_columns(path, {"angle"}) else None

    def record(self, row: dict[str, Any]) -> dict[str, Any]:
        """See `RecordFiles`."""
        numbers = [float(row[name]) for name in ("cx", "cy", "w", "h")]
        xmin, ymin, xmax, ymax = envelope_of_rotated(*numbers, radians(float(row["angle"])))
        return {
            "image_id": row["image"],
            "category_id": row["name"],
            "bbox": [xmin, ymin, xmax - xmin, ymax - ymin],
            "score": float(row["conf"]),
        }
