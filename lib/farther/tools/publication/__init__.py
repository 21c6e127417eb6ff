"""Publishing curated splits: COCO JSON, Parquet as FindMeIfYouCan is published, a Hugging Face dataset folder."""

from farther.tools.publication.contents import PublishedSplit
from farther.tools.publication.folder import FORMATS, publish
from farther.tools.publication.publication import Publication, collect
from farther.tools.publication.words import Words, read_words

__all__ = ["FORMATS", "Publication", "PublishedSplit", "Words", "collect", "publish", "read_words"]
