"""Publishes curated splits: COCO JSON, Parquet as FindMeIfYouCan is published, a Hugging Face dataset folder."""

from farther.publication.contents import Publication, PublishedSplit, collect
from farther.publication.datasheet import Words, read_words
from farther.publication.publish import FORMATS, publish

__all__ = ["FORMATS", "Publication", "PublishedSplit", "Words", "collect", "publish", "read_words"]
