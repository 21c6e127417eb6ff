"""The detector's own uncertainty, and that of several passes."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array
from farther.methods.base import Method, Publication, register
from farther.methods.rows import Rows


@register("uncertainty")
class Uncertainty(Method):
    """Minus the uncertainty that the detector itself gave each region.

    For detectors that estimate their uncertainty (Monte Carlo dropout, an ensemble, a variance
    head): the values are imported with the detections and evaluated as the other scores are.

    Formula:
        score = − u_i, u_i the uncertainty of region i, higher for less certain

    References:
        The detector's: farther computes nothing.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("uncertainty").score(toy_regions(uncertainty=[0.25, 0.5]))
        array([-0.25, -0.5 ])
    """

    title: ClassVar[str] = "Uncertainty"
    needs: ClassVar[frozenset[str]] = frozenset({"uncertainty"})

    def _score(self, rows: Rows) -> Array:
        return -rows.vectors("uncertainty")


@register("predictive_entropy")
class PredictiveEntropy(Method):
    """Minus the entropy of the mean probabilities of several passes.

    A pass with several forward passes stores it: `pass: dropout`. It is high where the passes are
    uncertain, and where they disagree.

    Formula:
        score = − H(p̄), p̄ = (1/S) Σ_s p_s, with p_s the probabilities of pass s

    References:
        Gal and Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in
        Deep Learning", 2016, arXiv:1506.02142.

        Miller et al., "Dropout Sampling for Robust Object Detection in Open-Set Conditions", 2018,
        arXiv:1710.06677.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("predictive_entropy").score(
        ...     toy_regions(logits=[[0.0, 0.0]], predictive_entropy=[0.5])
        ... )
        array([-0.5])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning",
        2016,
        "https://arxiv.org/abs/1506.02142",
    )
    title: ClassVar[str] = "Predictive entropy"
    aliases: ClassVar[tuple[str, ...]] = ("PE",)
    published_entries: ClassVar[dict[str, tuple[str, str]]] = {
        "MC dropout": (
            "predictive_entropy: {pass: dropout}",
            "dropout: {kind: dropout}",
        ),
        "MCD": (
            "predictive_entropy: {pass: dropout}",
            "dropout: {kind: dropout}",
        ),
    }
    needs: ClassVar[frozenset[str]] = frozenset({"predictive_entropy"})

    def _score(self, rows: Rows) -> Array:
        return -rows.vectors("predictive_entropy")


@register("mutual_information")
class MutualInformation(Method):
    """Minus the mutual information of class and pass: the disagreement of several passes.

    A pass with several forward passes stores it: `pass: dropout`. It is 0 where all passes give the
    same probabilities, however uncertain these are.

    Formula:
        score = − (H(p̄) − (1/S) Σ_s H(p_s)), p̄ = (1/S) Σ_s p_s, with p_s the probabilities of pass
        s

    References:
        Gal et al., "Deep Bayesian Active Learning with Image Data", 2017, arXiv:1703.02910.

        Houlsby et al., "Bayesian Active Learning for Classification and Preference Learning", 2011,
        arXiv:1112.5745.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("mutual_information").score(
        ...     toy_regions(logits=[[0.0, 0.0]], mutual_information=[0.25])
        ... )
        array([-0.25])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Deep Bayesian Active Learning with Image Data",
        2017,
        "https://arxiv.org/abs/1703.02910",
    )
    title: ClassVar[str] = "Mutual information"
    aliases: ClassVar[tuple[str, ...]] = ("MI",)
    published_entries: ClassVar[dict[str, tuple[str, str]]] = {
        "MC dropout": (
            "mutual_information: {pass: dropout}",
            "dropout: {kind: dropout}",
        ),
        "MCD": (
            "mutual_information: {pass: dropout}",
            "dropout: {kind: dropout}",
        ),
    }
    needs: ClassVar[frozenset[str]] = frozenset({"mutual_information"})

    def _score(self, rows: Rows) -> Array:
        return -rows.vectors("mutual_information")
