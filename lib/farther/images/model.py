"""A network that images are streamed through; see `farther.images.stream`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from farther.tables import Table


class Model(ABC):
    """A network that yields one table per batch of images.

    It must be picklable, without the network itself.
    """

    #: Where the network runs, as PyTorch names it, or "auto".
    device: str = "cpu"
    #: Dotted names of modules, besides the model's own, whose code the rows depend on.
    modules: ClassVar[tuple[str, ...]] = ()
    #: Whether `forward` computes gradients: then it runs outside of PyTorch's inference mode.
    needs_gradients: bool = False

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that the rows depend on besides images, parameters and code, as JSON."""

    @abstractmethod
    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """Input of `forward` for one image; cheap, and does not need the network.

        Args:
            image: ndarray of shape (H, W, 3), uint8, red green blue.
            image_id: Its name in the images table.
        """

    @abstractmethod
    def forward(self, prepared: list, image_ids: list[str]) -> Table:
        """The rows of a batch of prepared images, with the image's name in column `image_id`.

        Raises:
            DataError: the network gives values that cannot be used.
        """

    @abstractmethod
    def empty(self) -> Table:
        """A table without rows, for a shard without a usable image."""

    def forward_all(self, prepared: list, image_ids: list[str]) -> tuple[Table, ...]:
        """The table of `forward`, and further tables of the same forward pass; see `stream`."""
        return (self.forward(prepared, image_ids),)

    def empties(self) -> tuple[Table, ...]:
        """The tables of `forward_all` without rows."""
        return (self.empty(),)

    def load(self) -> Any:
        """Loads the network, unless it is loaded; worker processes forked afterwards share it."""
        return None

    def runs_on_cpu(self) -> bool:
        """Whether the network runs on the CPU."""
        return True

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """Completes the table of a shard.

        Args:
            table: Its rows, in the order of the images table.
            rows: Row in the images table of each row's image, ndarray of shape (N,), int64.
        """
        return table
