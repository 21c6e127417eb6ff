"""Mahalanobis distances of several layers, combined by a logistic regression."""

from __future__ import annotations

import warnings
from typing import ClassVar, NamedTuple

import numpy as np

from farther.methods.arrays import Array
from farther.methods.base import (
    Annotation,
    FitError,
    Method,
    Publication,
    RegionsLike,
    columns_of_layers,
    count_rows,
    refuse_other_than_regions,
    register,
)
from farther.methods.mahalanobis import Mahalanobis, squared_distances
from farther.methods.publications import MDS
from farther.methods.rows import Rows
from farther.terms import Protocol


class LayerState(NamedTuple):
    """Fitted state of `mahalanobis` of a layer with D values, r directions and C classes.

    Attributes:
        mean: Shape (D,).
        whitening: Shape (D, r).
        centres: Whitened class means, shape (C, r).
    """

    mean: Array
    whitening: Array
    centres: Array


@register("mds_ensemble")
class MDSEnsemble(Method):
    """The weighted sum of the scores `mahalanobis` of several layers.

    The weights are the coefficients of a logistic regression (scikit-learn's, with its strength of
    regularisation chosen by cross-validation) of known against unknown regions, which are one of:

    - a pass, `negatives`: the run's training regions against the same regions of the pass, such as
      `perturb` with `direction: up`, the adversarial examples that the paper uses where no OOD data
      is to be looked at;
    - a split, `ood_split`: the ID validation regions against those of an OOD split on which no
      result is reported, or of pseudo-OOD images;
    - neither: all weights are 1, as if the layers were independent Gaussians.

    The paper's perturbation of the image is a pass too: `pass` names one of kind `perturb` with
    `loss: mahalanobis`.

    Formula:
        score = Σ_l α_l max_c − (v_l − μ_lc)ᵀ Σ_l⁻¹ (v_l − μ_lc), v_l the activations of layer l,
        averaged over the image or box, μ_lc and Σ_l as in `mahalanobis`

    Args:
        layer: Layers l: names of columns `latent.<layer>`, which the detector's parameter `latents`
            stores, and "latent" and "features" for the columns of these names. None takes the two
            latter; with `protocol="published-code"` `latent` alone.
        negatives: Name of the pass that the weights are learned from.
        ood_split: Name of the split that the weights are learned from.
        protocol: "paper": distances are divided by their standard deviation before the regression,
            so that layers of many channels are not regularised less than others; "published-code":
            half distances as they are, and one layer alone by default, as OpenOOD.

    Attributes:
        means_, whitenings_, centres_: Those of `mahalanobis` for each layer, one layer after the
            other, each an ndarray of one dimension.
        shapes_: Dimensions, rank and number of classes of each layer.
        weights_: α, ndarray of shape (L,).

    References:
        Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and
        Adversarial Attacks", 2018, arXiv:1807.03888. Code:
        https://github.com/pokaxpoka/deep_Mahalanobis_detector

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[-1.0], [1.0]], latent=[[2.0], [6.0]], label=[0, 0])
        >>> create("mds_ensemble").fit(train).score(
        ...     train[:1]
        ... )  # one standard deviation from the mean in each layer
        array([-2.])
    """

    publication: ClassVar[Publication | None] = MDS
    title: ClassVar[str] = "MDS ensemble"
    aliases: ClassVar[tuple[str, ...]] = ("Mahalanobis ensemble",)
    needs: ClassVar[frozenset[str]] = frozenset({"latent", "features", "labels"})
    annotation: ClassVar[Annotation] = "class"
    layer: tuple[str, ...] | None = None
    negatives: str | None = None
    ood_split: str | None = None
    protocol: Protocol = "paper"

    def __post_init__(self) -> None:
        if self.negatives is not None and self.ood_split is not None:
            raise ValueError(
                "the weights are learned from 'negatives' or from 'ood_split', not from both"
            )

    @property
    def layers(self) -> tuple[str, ...]:
        """See `Method.layers`."""
        if self.layer:
            return columns_of_layers(self.layer)
        if self.protocol == "paper":
            return ("latent", "features")
        return ("latent",)

    @property
    def wants_pass(self) -> str | None:
        """See `Method.wants_pass`."""
        return self.negatives

    @property
    def wants_split(self) -> str | None:
        """See `Method.wants_split`."""
        return self.ood_split

    def _fit(self, regions: RegionsLike) -> None:
        parts = self._parts()
        for part in parts:
            part._fit(regions)
        self.shapes_ = [[*part.whitening_.shape, len(part.centres_)] for part in parts]
        self.means_ = np.concatenate([part.mean_ for part in parts])
        self.whitenings_ = np.concatenate([part.whitening_.ravel() for part in parts])
        self.centres_ = np.concatenate([part.centres_.ravel() for part in parts])
        if self.negatives is None and self.ood_split is None:
            self.weights_ = np.ones(len(parts))

    def _parts(self) -> list[Mahalanobis]:
        """One method per layer, not fitted."""
        return [Mahalanobis(layer=name.removeprefix("latent.")) for name in self.layers]

    def learn_pass(self, regions: RegionsLike, others: RegionsLike) -> None:
        """See `Method.learn_pass`."""
        self._learn(regions, others, f"the pass {self.negatives!r}")

    def learn_split(self, known: RegionsLike, unknown: RegionsLike) -> None:
        """See `Method.learn_split`."""
        self._learn(known, unknown, f"the split {self.ood_split!r}")

    def _learn(self, known: RegionsLike, unknown: RegionsLike, place: str) -> None:
        # scikit-learn takes a second.
        from sklearn.linear_model import LogisticRegressionCV

        refuse_other_than_regions(known)
        refuse_other_than_regions(unknown)
        missing = self.missing(unknown)
        if missing:
            raise FitError(f"{self.name}: {place} lacks {', '.join(missing)}")
        parts = [
            [self._per_layer(Rows.of(block)) for block in self._blocks(regions)]
            for regions in (known, unknown)
        ]
        counts = [count_rows(known), count_rows(unknown)]
        folds = min(5, *counts)
        if folds < 2:
            numbers = f"{counts[0]} known and {counts[1]} unknown regions ({place})"
            raise FitError(f"{self.name}: {numbers} are too few")
        scores = np.concatenate([*parts[0], *parts[1]])
        deviation = np.full(scores.shape[1], 2.0)
        if self.protocol == "paper":
            deviation = scores.std(axis=0)
        deviation[deviation == 0] = 1.0
        with warnings.catch_warnings():
            # Of convergence, and of other defaults in later versions.
            warnings.simplefilter("ignore")
            regression = LogisticRegressionCV(cv=folds, scoring="accuracy").fit(
                scores / deviation, np.repeat([1, 0], counts)
            )
        self.weights_ = regression.coef_[0] / deviation

    def fitted_parts(self) -> list[Mahalanobis]:
        """`mahalanobis` of each layer, fitted."""
        parts = self._parts()
        for part, state in zip(parts, self._layer_states(), strict=True):
            part.mean_ = state.mean
            part.whitening_ = state.whitening
            part.centres_ = state.centres
        return parts

    def _layer_states(self) -> list[LayerState]:
        """The fitted state of each layer, cut out of the arrays of all layers."""
        states = []
        first_mean = first_whitening = first_centre = 0
        for width, rank, classes in self.shapes_:
            end_mean = first_mean + width
            end_whitening = first_whitening + width * rank
            end_centre = first_centre + classes * rank
            states.append(
                LayerState(
                    mean=self.means_[first_mean:end_mean],
                    whitening=self.whitenings_[first_whitening:end_whitening].reshape(width, rank),
                    centres=self.centres_[first_centre:end_centre].reshape(classes, rank),
                )
            )
            first_mean = end_mean
            first_whitening = end_whitening
            first_centre = end_centre
        return states

    def _per_layer(self, rows: Rows) -> Array:
        """The score of each layer, shape (n, L)."""
        scores = []
        for layer, state in zip(self.layers, self._layer_states(), strict=True):
            centred = rows.vectors(layer)
            centred -= state.mean
            scores.append(-squared_distances(centred, state.whitening, state.centres))
        return rows.xp.stack(scores, axis=1)

    def _score(self, rows: Rows) -> Array:
        if not hasattr(self, "weights_"):
            learn = "learn_pass" if self.ood_split is None else "learn_split"
            raise FitError(f"{self.name}: its weights are not fitted; call {learn}")
        return self._per_layer(rows) @ self.weights_
