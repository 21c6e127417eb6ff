"""How a detection transformer is trained: every number that decides it. Needs no framework."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tools.training.recipe import Count, Fraction, Positive, Recipe


@dataclass(config=STRICT, kw_only=True)
class DetrRecipe(Recipe):
    """Parameters of a training run; those not named here are `Recipe`'s.

    The defaults are FMIYC's for Pascal VOC, Appendix G and Table 26 (for BDD100k both learning rates are twice as
    high): a checkpoint trained on COCO is fine-tuned until the validation figures stop rising.

    Args:
        backbone_learning_rate: Of the backbone, at its highest.
        patience: Epochs without a better mAP50 on the validation images after which training ends; the weights of the
            best epoch are kept. None trains to the end and keeps the last.
        one_to_many: Initial weight of `farther.tools.training.detr_losses.one_to_many_loss`, for networks that are
            trained from scratch.
        one_to_many_until: Fraction of the run in which that weight falls to 0, in a straight line.
    """

    epochs: Count = 60
    batch_size: Count = 8
    optimizer: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Positive = 2e-5
    backbone_learning_rate: Positive = 2e-6
    clip_norm: Positive | None = 0.1
    seed: int = 40
    patience: Count | None = 16
    one_to_many: Annotated[float, Field(ge=0)] = 0.0
    one_to_many_until: Fraction = 0.5

    def one_to_many_at(self, progress: float) -> float:
        """Weight after a fraction of the run."""
        return self.one_to_many * max(0.0, 1 - progress / self.one_to_many_until) if self.one_to_many_until else 0.0
