"""`farther explain`: why an image is in a split, and how a metric's value was computed."""

from __future__ import annotations

import typer

from farther.command import uncertainty
from farther.command.explain import image, number
from farther.command.usage import Subcommand

app = typer.Typer(
    help="""Explain why an image is in a split, or how a value was computed.

    Nothing is recomputed.

    \b
    Examples:
      farther explain image 000000000139
      farther explain number voc-vos knn coco_near nose
      farther explain uncertainty voc-vos
    """,
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command("image", cls=Subcommand)(image.image)
app.command("number", cls=Subcommand)(number.number)
app.command("uncertainty", cls=Subcommand)(uncertainty.uncertainty)
