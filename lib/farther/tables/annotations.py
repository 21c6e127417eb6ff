"""The tables `images`, `objects`, `scores` and `true classes`."""

from __future__ import annotations

import polars as pl

from farther.tables.columns import BOX, Column
from farther.tables.table import Table


class Images(Table):
    """One row per image.

    Columns:
        image_id: Its name, unique in the table.
        dataset: Name of the dataset it comes from; the dataset's root is the folder of its files.
        file: Path of the file within that root, with forward slashes.
        width, height: Size in pixels, as stored in the file (before EXIF rotation).
        digest: Digest of the file's content (`farther.tables.files.digest`): a changed image is a changed table.
    """

    image_id = Column(pl.String, unique=True)
    dataset = Column(pl.String)
    file = Column(pl.String)
    width = Column(pl.Int32)
    height = Column(pl.Int32)
    digest = Column(pl.String)


class Objects(Table):
    """One row per annotated object.

    Columns:
        image_id: The image that shows it.
        object_id: Its number, unique in the table.
        box: xmin, ymin, xmax, ymax in pixels of the image, edges (not pixel indices): a one-pixel object is 1 wide.
        category: Name of its class in its dataset.
        is_crowd: The box holds several objects (COCO's iscrowd, OpenImages' IsGroupOf), never found or missed alone.
        is_difficult: The annotators marked it as hard to recognise (Pascal VOC).
    """

    image_id = Column(pl.String)
    object_id = Column(pl.Int64, unique=True)
    box = Column(BOX)
    category = Column(pl.String)
    is_crowd = Column(pl.Boolean, default=False)
    is_difficult = Column(pl.Boolean, default=False)


class Scores(Table):
    """A method's score, one row per region.

    Columns:
        image_id, region_id: The region.
        score: Higher means more in-distribution.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    score = Column(pl.Float64)


class TrueClasses(Table):
    """The class that each detection in annotated images shows, one row per detection.

    Columns:
        image_id, region_id: The detection.
        category: Class of the object that it overlaps; empty where it overlaps none.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    category = Column(pl.String)
