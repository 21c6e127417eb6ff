"""Publishing curated splits: COCO JSON, Parquet as FindMeIfYouCan is published, a Hugging Face dataset folder."""

from farther.curation.publication.contents import PublishedSplit
from farther.curation.publication.folder import FORMATS, publish
from farther.curation.publication.publication import Publication, collect
from farther.curation.publication.words import Words, read_words

__all__ = ["FORMATS", "Publication", "PublishedSplit", "Words", "collect", "publish", "read_words"]
