"""Publishes curated splits as COCO JSON, as Parquet like FMIYC, or as a Hugging Face dataset."""

from farther.publication.contents import Publication, PublishedSplit, collect
from farther.publication.datasheet import Words, read_words
from farther.publication.publish import FORMATS, publish

__all__ = ["FORMATS", "Publication", "PublishedSplit", "Words", "collect", "publish", "read_words"]
