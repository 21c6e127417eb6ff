"""The result of a monitor for one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.tables import Regions


@dataclass(frozen=True)
class Monitored:
    """One image's detections, with their scores.

    Args:
        image_id: The image's name.
        regions: The N detections: regions whose confidence is at or above t*, best first.
        score: The method's scores, ndarray of shape (N,), float64; higher means more
            in-distribution.
        unknown: Scores below τ, ndarray of shape (N,), bool.
        confidence: The detector's confidence, calibrated where the bundle has calibrators, ndarray
            of shape (N,).
        uncertainty: The image's, from all of the detector's regions, those below t* included; 1e12
            without a region; None where the run was not made self-aware.
        accepted: Whether the image is accepted: its uncertainty is at most the bundle's image
            threshold. Otherwise it is *rejected*. True where the run was not made self-aware.
        proposals: Class-agnostic proposals on no detection that are called unknown, the highest
            `score` (objectness) first; None where the bundle has none.
    """

    image_id: str
    regions: Regions
    score: np.ndarray
    unknown: np.ndarray
    confidence: np.ndarray
    uncertainty: float | None = None
    accepted: bool = True
    proposals: Regions | None = None

    def __len__(self) -> int:
        return len(self.score)

    @property
    def has_unknown(self) -> bool:
        """Whether a detection is flagged or a proposal is called unknown: an alarm."""
        return bool(self.unknown.any()) or bool(self.proposals is not None and len(self.proposals))

    @property
    def box(self) -> np.ndarray:
        """xmin, ymin, xmax, ymax in pixels of the image, ndarray of shape (N, 4)."""
        return self.regions.box

    @property
    def label(self) -> np.ndarray:
        """Logits column of the predicted class, shape (N,): an index into `regions.classes`."""
        return self.regions.label

    @property
    def classes(self) -> list[str]:
        """Name of the predicted class of each detection, unknown ones included."""
        return [self.regions.classes[k] for k in self.label.tolist()]

    def to_supervision(self) -> Any:
        """The detections as supervision's `Detections`; needs the package supervision.

        `class_id` is the label; `data` has `class_name`, `unknown` and `id_score`: the method's
        score, of which higher means more in-distribution.
        """
        # Optional.
        import supervision

        return supervision.Detections(
            xyxy=self.box,
            confidence=self.confidence,
            class_id=self.label.astype(int),
            data={
                "class_name": np.array(self.classes, dtype=str),
                "unknown": self.unknown,
                "id_score": self.score,
            },
        )

    def to_coco(self) -> list[dict[str, Any]]:
        """The detections as COCO's results, with `category_name`, `unknown` and `id_score`.

        `bbox` is x, y, width, height. `category_id` is the number of the class among the detector's
        classes, from 0, as `class_id` of `to_supervision`; `category_name` is its name. `score` is
        the confidence, `id_score` the method's score: higher means more in-distribution.
        """
        boxes = self.box.astype(np.float64)
        boxes[:, 2:] -= boxes[:, :2]
        results = []
        for row, name in enumerate(self.classes):
            result = {
                "image_id": self.image_id,
                "category_id": int(self.label[row]),
                "category_name": name,
                "bbox": boxes[row].tolist(),
                "score": self.confidence[row].item(),
                "unknown": self.unknown[row].item(),
                "id_score": self.score[row].item(),
            }
            results.append(result)
        return results
