"""Settings of inference: which boxes are detections, and which columns are stored.

PyTorch is not imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from farther.tables.regions import GRAM, LAYER

if TYPE_CHECKING:
    from torch import Tensor

PerQuery = Literal["several", "one"]
Objectness = Literal["network", "class_score", "ambiguity"]


@dataclass(frozen=True)
class BoxSelection:
    """Which boxes are detections.

    Args:
        score_threshold: Boxes whose class scores at most this are dropped.
        iou: Of two boxes of one class that overlap by more than this, the better one is kept; 1
            keeps both.
        max_detections: Largest number per image.
        per_query: For detection transformers. "several": a query is a detection for each class
            above the threshold, as in transformers' processors for sigmoid heads. "one": for its
            best class only.
        candidates: For one-stage detectors: number of boxes per pyramid level, the best, that take
            part in NMS.
        clipped: Boxes are clipped to the image, as in the package rfdetr but not in transformers.
    """

    score_threshold: float
    iou: float
    max_detections: int
    per_query: PerQuery = "several"
    candidates: int = 1000
    clipped: bool = False


@dataclass(frozen=True)
class ProposalSelection:
    """Which candidates of a network are proposals; see `farther.detectors.proposal_sources`."""

    most: int = 100
    iou: float = 0.5
    smallest: float = 8.0
    objectness: Objectness = "ambiguity"
    size: float = 1.0
    candidates: int = 1000


@dataclass(frozen=True)
class MapSelection(ProposalSelection):
    """Which regions of a feature map are proposals; see `farther.detectors.proposal_sources`."""

    thresholds: int = 3


@dataclass(frozen=True)
class Pooling:
    """Pooling of activations over boxes.

    Args:
        size: Cells along one side of the grid.
        sampling: Samples along one side of a cell; below 1 as many as fit.
        all_levels: Pool each box from all pyramid levels, concatenated; else from the level that
            fits its size.
        published_rois: Place boxes as `published_cells` does.
    """

    size: int = 9
    sampling: int = 2
    all_levels: bool = False
    published_rois: bool = False


@dataclass(frozen=True)
class Layers:
    """Inner modules whose activations are stored, by their names in `named_modules`.

    Args:
        latents: Modules whose averages are the columns `latent.<name>`.
        grams: Modules whose Gram matrices are the columns `gram.<name>`; see `gram_rows`.
        powers: Number of powers of the Gram matrices.
    """

    latents: tuple[str, ...] = ()
    grams: tuple[str, ...] = ()
    powers: int = 5

    def only(self, columns: Collection[str] | None) -> Layers:
        """The modules whose columns are listed; all for None."""
        if columns is None:
            return self
        latents = tuple(name for name in self.latents if f"{LAYER}{name}" in columns)
        grams = tuple(name for name in self.grams if f"{GRAM}{name}" in columns)
        return Layers(latents, grams, self.powers)


NO_LAYERS = Layers()


@dataclass(frozen=True)
class StoredColumns:
    """Settings of the stored columns.

    Args:
        pooling: Pooling of `latent`.
        dtype: Type of `features` and `latent`.
        log_scores: For sigmoid heads: `logits` is log(sigmoid(logit)).
        layers: Modules of the columns `latent.<name>` and `gram.<name>`.
        only: Names of the other optional columns that are computed; None for all.
    """

    pooling: Pooling
    dtype: str = "float32"
    log_scores: bool = False
    layers: Layers = NO_LAYERS
    only: frozenset[str] | None = None

    def stores(self, column: str) -> bool:
        """True if an optional column is computed."""
        return self.only is None or column in self.only

    def arrays(self, columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Columns of features or activations as arrays, without those that are not stored."""
        arrays = {}
        for name, values in columns.items():
            if self.stores(name):
                arrays[name] = to_numpy(values, self.dtype)
        return arrays


#: No optional column.
NOTHING = StoredColumns(Pooling(), only=frozenset())


def to_numpy(tensor: Tensor, dtype: str = "float32") -> np.ndarray:
    """A tensor as an array on the CPU.

    Args:
        tensor: Values on any device.
        dtype: Type of floating-point values, "float32" or "float16". They are rounded by torch:
            NumPy takes up to twenty times as long for values below 6e-5.
    """
    if tensor.is_floating_point():
        tensor = tensor.float().half() if dtype == "float16" else tensor.float()
    return tensor.cpu().numpy()
