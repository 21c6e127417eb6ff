"""Why an image landed where it is, and how a figure was computed."""

from farther.command.explanation.image import explain_image
from farther.command.explanation.number import explain_number

__all__ = ["explain_image", "explain_number"]
