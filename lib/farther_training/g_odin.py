"""Generalized ODIN: a classifier whose logits are quotients."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from farther.detectors.networks.classifier_heads import Similarity
from farther.naming.registry import STRICT, Parameters


@dataclass(config=STRICT, kw_only=True)
class GOdin(Parameters):
    """Cross-entropy of the quotients h(x) / g(x).

    They learn p(y | x) as p(y, in-distribution | x) / p(in-distribution | x). The vectors w_c of
    the similarity h have no weight decay.

    Args:
        similarity: h, "inner", "euclidean" or "cosine"; see
            `farther.detectors.networks.classifier_heads.SimilarityLayer`. "cosine" is OpenOOD's.

    References:
        Hsu et al., "Generalized ODIN: Detecting Out-of-distribution Image without Learning from
        Out-of-distribution Data", 2020, Section 3.1, arXiv:2002.11297.
    """

    similarity: Similarity = "cosine"
