"""Similarity of images, splits and classes to ID: CLIP embeddings, WordNet, near-duplicates.

Example:
    >>> import numpy as np
    >>> from farther.similarity import nearest
    >>> found = nearest(np.array([[0.6, 0.8]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> int(found.row[0]), round(float(found.cosine[0]), 3)
    (1, 0.8)
"""

from farther.datasets.wordnet import WordNet, WordNetParams
from farther.images.clip import Encoder, EncoderParams
from farther.similarity.benchmark import BenchmarkSimilarity, stratify_benchmark
from farther.similarity.categories import CategorySimilarity, Prototypes, prototypes
from farther.similarity.duplicates import Duplicates, near_duplicates
from farther.similarity.embed import EmbedParams, embed, embed_dataset
from farther.similarity.embeddings import Embeddings, EmbeddingsFolder, NameEmbeddings
from farther.similarity.lookalikes import Lookalikes, Resemblance, not_embedded
from farther.similarity.nearest import Nearest, nearest
from farther.similarity.sources import SimilarityFiles, SplitSource
from farther.similarity.stratify import ImageSimilarity, StratifyParams, stratify

__all__ = [
    "BenchmarkSimilarity",
    "CategorySimilarity",
    "Duplicates",
    "EmbedParams",
    "Embeddings",
    "EmbeddingsFolder",
    "Encoder",
    "EncoderParams",
    "ImageSimilarity",
    "Lookalikes",
    "NameEmbeddings",
    "Nearest",
    "Prototypes",
    "Resemblance",
    "SimilarityFiles",
    "SplitSource",
    "StratifyParams",
    "WordNet",
    "WordNetParams",
    "embed",
    "embed_dataset",
    "near_duplicates",
    "nearest",
    "not_embedded",
    "prototypes",
    "stratify",
    "stratify_benchmark",
]
