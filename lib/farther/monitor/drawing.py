"""Pictures of what a monitor found: known objects with their class, unknown ones in another colour, and a legend."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import supervision as sv
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from farther.monitor.monitor import Monitored

#: Colours of known and unknown detections, as in the report's gallery, of proposals, and of a
#: rejected image.
KNOWN, UNKNOWN, PROPOSED, REJECTED = "#C44900", "#0072B2", "#008A6E", "#AA3377"

#: Smaller images are enlarged until their longer side has this number of pixels, so that text on
#: them can be read.
LEAST = 640


def draw(pixels: np.ndarray, monitored: Monitored) -> np.ndarray:
    """The picture of an image: detections by supervision's annotators, and below them a legend and the image's name.

    A rejected image has a frame.

    Args:
        pixels: ndarray of shape (H, W, 3), uint8, red green blue.
        monitored: What was found.

    Returns:
        ndarray of shape (H', W', 3), uint8, blue green red, as OpenCV has it.
    """
    factor = -(-LEAST // max(pixels.shape[:2]))
    height, width = (side * factor for side in pixels.shape[:2])
    if factor > 1:
        pixels = np.asarray(
            Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        )
    scene = np.ascontiguousarray(pixels[:, :, ::-1])
    thickness = sv.calculate_optimal_line_thickness((width, height))
    found = monitored.to_supervision()
    found.xyxy = found.xyxy * factor
    colours, of = sv.ColorPalette.from_hex([KNOWN, UNKNOWN]), monitored.unknown.astype(int)
    scene = sv.BoxAnnotator(colours, thickness).annotate(scene, found, custom_color_lookup=of)
    texts = [
        f"{'unknown' if unknown else name} {confidence:.2f}"
        for name, unknown, confidence in zip(
            monitored.classes, monitored.unknown, monitored.confidence, strict=True
        )
    ]
    scene = _label_annotator(texts, colours, (width, height)).annotate(
        scene, found, texts, custom_color_lookup=of
    )
    if monitored.proposals is not None and len(monitored.proposals):
        score, label = monitored.proposals.score, np.zeros(len(monitored.proposals), int)
        proposed = sv.Detections(
            xyxy=monitored.proposals.box * factor, confidence=score, class_id=label
        )
        texts = [f"unknown? {value:.2f}" for value in score.tolist()]
        colour = sv.Color.from_hex(PROPOSED)
        scene = sv.BoxAnnotator(colour, thickness).annotate(scene, proposed)
        scene = _label_annotator(texts, colour, (width, height)).annotate(scene, proposed, texts)
    if not monitored.accepted:
        scene = sv.draw_rectangle(
            scene, sv.Rect(0, 0, width, height), sv.Color.from_hex(REJECTED), 8 * thickness
        )
    return np.vstack([scene, _legend(monitored, width, max(22, height // 24))])


def _label_annotator(texts: list[str], colours: Any, size: tuple[int, int]) -> Any:
    """OpenCV's letters, which are drawn fastest, or Pillow's where they are not ASCII."""
    scale = max(0.45, sv.calculate_optimal_text_scale(size))
    settings = {
        "color": colours,
        "text_color": sv.Color.WHITE,
        "text_padding": 4,
        "smart_position": True,
    }
    if all(text.isascii() for text in texts):
        return sv.LabelAnnotator(text_scale=scale, **settings)
    return sv.RichLabelAnnotator(font_size=round(26 * scale), **settings)


def _legend(monitored: Monitored, width: int, height: int) -> np.ndarray:
    """A strip with the meaning of the colours, and the image's name."""
    keys, x = _keys(
        width, height, accepted=monitored.accepted, proposed=monitored.proposals is not None
    )
    strip = keys.copy()
    font = ImageFont.load_default(0.62 * height)
    ImageDraw.Draw(strip).text((x, height / 2), monitored.image_id, "#52606D", font, "lm")
    return np.asarray(strip)[:, :, ::-1]


@lru_cache(maxsize=8)
def _keys(width: int, height: int, *, accepted: bool, proposed: bool) -> tuple[Image.Image, float]:
    """The strip without a name, and where the name begins."""
    strip = Image.new("RGB", (width, height), "white")
    pen, font, x = ImageDraw.Draw(strip), ImageFont.load_default(0.62 * height), 0.3 * height
    entries = [(KNOWN, "known"), (UNKNOWN, "unknown")]
    entries += [(PROPOSED, "proposal")] if proposed else []
    entries += [] if accepted else [(REJECTED, "image rejected")]
    for colour, text in entries:
        pen.rectangle((x, 0.28 * height, x + 0.44 * height, 0.72 * height), colour)
        x += 0.65 * height
        pen.text((x, height / 2), text, "black", font, "lm")
        x += pen.textlength(text, font) + 0.8 * height
    return strip, x
