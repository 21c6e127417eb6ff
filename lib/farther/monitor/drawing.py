"""Pictures of a monitor's detections: the known ones with their class, and the unknown ones."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

with warnings.catch_warnings():
    # Without OpenCV, supervision draws with NumPy, which is enough here.
    warnings.filterwarnings("ignore", "OpenCV .* is not installed", UserWarning)
    import supervision as sv

from farther.monitor.monitored import Monitored
from farther.tables import Regions

#: Colours of known detections, of unknown ones, of proposals, and of a rejected image. Grey is for
#: known ones: the report's orange is *misclassified*, which a monitor cannot tell. White text has a
#: contrast of at least 4 on each.
KNOWN, UNKNOWN, PROPOSED, REJECTED = "#3F4754", "#0072B2", "#008A6E", "#AA3377"

#: Colour of the line around each box, by which it is seen on dark images and bright ones.
HALO = "#FFFFFF"

#: Smaller images are enlarged until their longer side has this number of pixels, so that text on
#: them can be read.
MIN_SIDE = 640


def draw(pixels: np.ndarray, monitored: Monitored) -> np.ndarray:
    """The picture of an image: its detections, and below them a legend and the image's name.

    Detections and proposals are drawn by supervision's annotators. A rejected image has a frame.

    Args:
        pixels: ndarray of shape (H, W, 3), uint8, red green blue.
        monitored: The image's detections.

    Returns:
        ndarray of shape (H', W', 3), uint8, blue green red, as OpenCV has it.
    """
    factor = -(-MIN_SIDE // max(pixels.shape[:2]))
    height, width = (side * factor for side in pixels.shape[:2])
    if factor > 1:
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    scene = np.ascontiguousarray(pixels[:, :, ::-1])

    scene = _with_detections(scene, monitored, factor)
    if monitored.proposals is not None and len(monitored.proposals):
        scene = _with_proposals(scene, monitored.proposals, factor)
    if not monitored.accepted:
        thickness = 8 * sv.calculate_optimal_line_thickness((width, height))
        frame = sv.Rect(0, 0, width, height)
        scene = sv.draw_rectangle(scene, frame, sv.Color.from_hex(REJECTED), thickness)
    legend = _legend(monitored, width, max(22, min(width, height) // 24))
    return np.vstack([scene, legend])


def _with_detections(scene: np.ndarray, monitored: Monitored, factor: int) -> np.ndarray:
    """The scene with boxes and classes of the detections, which are enlarged by a factor."""
    size = (scene.shape[1], scene.shape[0])
    detections = monitored.to_supervision()
    detections.xyxy = detections.xyxy * factor
    texts = []
    for row, name in enumerate(monitored.classes):
        title = "unknown" if monitored.unknown[row] else name
        texts.append(f"{title} {monitored.confidence[row]:.2f}")

    colours = sv.ColorPalette.from_hex([KNOWN, UNKNOWN])
    colour_of_detection = monitored.unknown.astype(int)
    thickness = sv.calculate_optimal_line_thickness(size)
    scene = _with_halo(scene, detections, thickness)
    boxes = sv.BoxAnnotator(colours, thickness)
    scene = boxes.annotate(scene, detections, custom_color_lookup=colour_of_detection)
    labels = _label_annotator(texts, colours, size)
    return labels.annotate(scene, detections, texts, custom_color_lookup=colour_of_detection)


def _with_proposals(scene: np.ndarray, proposals: Regions, factor: int) -> np.ndarray:
    """The scene with boxes and objectness of proposals, which are enlarged by a factor."""
    size = (scene.shape[1], scene.shape[0])
    boxes = sv.Detections(
        xyxy=proposals.box * factor,
        confidence=proposals.score,
        class_id=np.zeros(len(proposals), int),
    )
    texts = [f"unknown? {value:.2f}" for value in proposals.score.tolist()]
    colour = sv.Color.from_hex(PROPOSED)
    thickness = sv.calculate_optimal_line_thickness(size)
    scene = _with_halo(scene, boxes, thickness)
    scene = sv.BoxAnnotator(colour, thickness).annotate(scene, boxes)
    return _label_annotator(texts, colour, size).annotate(scene, boxes, texts)


def _with_halo(scene: np.ndarray, boxes: Any, thickness: int) -> np.ndarray:
    """The scene with a white line under each box, wider than its own of `thickness` pixels."""
    halo = sv.BoxAnnotator(sv.Color.from_hex(HALO), thickness + 2)
    return halo.annotate(scene, boxes)


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
    pen = ImageDraw.Draw(strip)
    font = ImageFont.load_default(0.62 * height)
    x = 0.3 * height
    entries = [(KNOWN, "known"), (UNKNOWN, "unknown")]
    if proposed:
        entries.append((PROPOSED, "proposal"))
    if not accepted:
        entries.append((REJECTED, "rejected: too uncertain"))
    for colour, text in entries:
        pen.rectangle((x, 0.28 * height, x + 0.44 * height, 0.72 * height), colour)
        x += 0.65 * height
        pen.text((x, height / 2), text, "black", font, "lm")
        x += pen.textlength(text, font) + 0.8 * height
    return strip, x
