"""Maximum logit score."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array
from farther.methods.base import Method, Publication, register
from farther.methods.logits import Background
from farther.methods.publications import SCALING
from farther.methods.rows import Rows


@register("mls")
class MLS(Method):
    """The largest logit.

    Formula:
        score = max_c z_c

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    References:
        Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", 2022,
        arXiv:1911.11132. Code: https://github.com/hendrycks/anomaly-seg

        "MLV" of Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection",
        2023, arXiv:2404.10474.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("mls").score(toy_regions(logits=[[1.0, 3.0], [2.0, 0.0]]))
        array([3., 2.])
    """

    publication: ClassVar[Publication | None] = SCALING
    title: ClassVar[str] = "MLS"
    aliases: ClassVar[tuple[str, ...]] = ("MaxLogit", "Maximum logit score", "MLV")
    published_entries: ClassVar[dict[str, tuple[str, str]]] = {
        "IP-TS-MLV": (
            "ip_ts_mlv: {method: mls, pass: perturbed}",
            "perturbed: {kind: perturb, epsilon: 0.0014, temperature: 1000}",
        ),
    }
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    background: Background = "drop"

    def _score(self, rows: Rows) -> Array:
        return rows.xp.max(rows.logits(self.background), axis=1)
