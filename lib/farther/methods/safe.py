"""A classifier of clean against perturbed regions."""

from __future__ import annotations

import itertools
import warnings
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from farther.methods.arrays import Array, at_least, cast
from farther.methods.base import (
    FitError,
    Method,
    Publication,
    RegionsLike,
    refuse_other_than_regions,
    register,
)
from farther.methods.rows import Rows
from farther.tables import Regions

# Imported in functions: scikit-learn, which takes a second.


@register("safe")
class SAFE(Method):
    """A neural network that tells activations of training regions from changed ones.

    Changed are those after a step of the image.

    The pass `negatives` gives the same training regions of images that moved up the detector's loss
    (the pass `perturb` with `direction: up`, the fast gradient sign method); no OOD data is used.
    The paper finds those layers the most sensitive to such a step that halve the resolution beside
    a residual connection and end in batch normalisation: name them in the detector's `latents` and
    in `layer`. Of a ResNet they are `backbone.body.layer1.0.downsample` to
    `backbone.body.layer4.0.downsample`, or `shortcut` in Detectron2's names.

    The network is scikit-learn's, trained by Adam, and its weights are stored as arrays. The
    published code trains by gradient descent, on activations that only their mean is subtracted
    from, drops half of the last hidden layer, and has no function between its layers, so that its
    network is a linear one: `activation: identity`.

    On the demo, whose backbones are small, known and unknown objects are told apart no better than
    by chance: AUROC 0.39 to 0.58, with one late layer or with the four that halve the resolution.

    Formula:
        score = f((o − mean) / deviation), o the activations of all layers side by side, f the log
        odds of a clean image by the network

    Args:
        layer: Names of the columns `latent.<layer>`; None takes the column `latent`.
        negatives: Name of the run's pass whose training regions are the negatives.
        hidden: Sizes of the hidden layers; None takes half and a quarter of the number of
            activations.
        activation: Function of the hidden layers.
        epochs: Passes over the regions.
        learning_rate: Adam's learning rate.
        sample: Number of regions to learn from, at most, drawn at random; there are as many
            negatives.
        seed: Seed of that draw, the initial weights and the order of the regions.

    Attributes:
        mean_, deviation_: Of the activations of the clean training regions, ndarray of shape (D,).
        sizes_: Number of inputs of each layer of the network, and 1.
        weights_: Of its layers one after the other, the bias of each as its last row, ndarray of
            one dimension.

    References:
        Wilson et al., "SAFE: Sensitivity-Aware Features for Out-of-Distribution Object Detection",
        2023, arXiv:2208.13930. Code: https://github.com/SamWilso/SAFE_Official

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> clean = toy_regions(latent=[[1.0, 0.1 * i] for i in range(40)])
        >>> moved = toy_regions(latent=[[-1.0, 0.1 * i] for i in range(40)])
        >>> safe = create("safe", hidden=(8,), epochs=200).fit(clean)
        >>> safe.learn_pass(clean, moved)
        >>> (safe.score(toy_regions(latent=[[1.0, 0.0], [-1.0, 0.0]])) > 0).tolist()
        [True, False]
    """

    publication: ClassVar[Publication | None] = Publication(
        "SAFE: Sensitivity-Aware Features for Out-of-Distribution Object Detection",
        2023,
        "https://arxiv.org/abs/2208.13930",
        code="https://github.com/SamWilso/SAFE_Official",
    )
    title: ClassVar[str] = "SAFE"
    needs: ClassVar[frozenset[str]] = frozenset({"latent"})
    layer: str | tuple[str, ...] | None = None
    negatives: str = "perturbed"
    hidden: tuple[PositiveInt, ...] | None = None
    activation: Literal["relu", "identity"] = "relu"
    epochs: PositiveInt = 5
    learning_rate: PositiveFloat = 1e-3
    sample: PositiveInt = 10_000
    seed: NonNegativeInt = 0

    @property
    def wants_pass(self) -> str | None:
        """See `Method.wants_pass`."""
        return self.negatives

    def _vectors(self, rows: Rows | Regions) -> Array:
        rows = Rows.of(rows)
        return rows.xp.concat([rows.vectors(name) for name in self.layers or ("latent",)], axis=1)

    def _fit(self, regions: RegionsLike) -> None:
        rows = 0
        sums = np.zeros(())
        squares = np.zeros(())
        for block, _ in self._pass(regions):
            rows = rows + len(block)
            sums = sums + block.sum(axis=0)
            squares = squares + (block**2).sum(axis=0)
        self.mean_ = sums / rows
        variance = np.maximum(squares / rows - self.mean_**2, 0.0)
        self.deviation_ = np.where(variance > 1e-12 * squares / rows, np.sqrt(variance), 1.0)

    def learn_pass(self, regions: RegionsLike, negatives: RegionsLike) -> None:
        """See `Method.learn_pass`."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier

        refuse_other_than_regions(regions)
        refuse_other_than_regions(negatives)
        missing = self.missing(negatives)
        if missing:
            raise FitError(f"{self.name}: the pass {self.negatives!r} lacks {', '.join(missing)}")
        clean = self._sampled(regions)
        moved = self._sampled(negatives)
        vectors = np.concatenate([clean, moved])
        is_same = clean.shape == moved.shape and (clean == moved).all()
        if is_same or not np.isfinite(vectors).all():
            raise FitError(
                f"{self.name}: the regions of the pass {self.negatives!r} are those of the run"
            )
        hidden = self.hidden
        if hidden is None:
            width = vectors.shape[1]
            hidden = (max(1, width // 2), max(1, width // 4))
        network = MLPClassifier(
            hidden,
            activation=self.activation,
            learning_rate_init=self.learning_rate,
            max_iter=self.epochs,
            random_state=self.seed,
        )
        labels = np.repeat([1, 0], [len(clean), len(moved)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            network.fit(vectors, labels)
        self.sizes_ = [*(len(weight) for weight in network.coefs_), 1]
        layers = zip(network.coefs_, network.intercepts_, strict=True)
        self.weights_ = np.concatenate([part.ravel() for layer in layers for part in layer])

    def _sampled(self, regions: RegionsLike) -> np.ndarray:
        """Standardised vectors of at most `sample` regions, shape (n, D), float32."""
        blocks = []
        for block in self._drawn(regions, self.sample, self.seed):
            blocks.append(self._standardised(block).astype(np.float32))
        return np.concatenate(blocks)

    def _standardised(self, rows: Rows | Regions) -> Array:
        return (self._vectors(rows) - self.mean_) / self.deviation_

    def _score(self, rows: Rows) -> Array:
        if not hasattr(self, "weights_"):
            raise FitError(
                f"{self.name} learns from the pass {self.negatives!r} too: call learn_pass"
            )
        values = self._standardised(rows)
        first = 0
        for inputs, outputs in itertools.pairwise(self.sizes_):
            if first and self.activation == "relu":
                values = at_least(values, 0.0)
            end = first + (inputs + 1) * outputs
            layer = cast(self.weights_[first:end].reshape(inputs + 1, outputs), rows.dtype)
            values = values @ layer[:-1] + layer[-1]
            first = end
        return values[:, 0]
