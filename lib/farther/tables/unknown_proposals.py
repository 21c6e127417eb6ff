"""The table of proposals that are classified as unknown objects."""

from __future__ import annotations

import polars as pl

from farther.tables.columns import BOX, Column
from farther.tables.table import Table


class UnknownProposalTable(Table):
    """Proposals above τ_o that overlap no detection, one row per proposal.

    Stored as `recovered/<run>/called/<source>/<split>.parquet`; see
    `farther.evaluation.files.RunFiles`.

    Columns:
        image_id: Its image.
        box: xmin, ymin, xmax, ymax in pixels of the image.
        objectness: Higher for boxes that are more likely an object.
        object_id: The missed unknown object that it matches, −1 for none.
    """

    image_id = Column(pl.String)
    box = Column(BOX)
    objectness = Column(pl.Float32)
    object_id = Column(pl.Int64)
