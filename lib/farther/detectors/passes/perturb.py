"""One step of the image along the gradient of a loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass

from farther.detectors.base import Fraction, Protocol
from farther.detectors.passes.base import Pass, check_replay, register_pass
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.files import digest

if TYPE_CHECKING:
    from farther.detectors.base import Detector
    from farther.detectors.networks.perturbation import Gaussians, Step


@register_pass("perturb")
@dataclass(config=STRICT, kw_only=True)
class Perturb(Pass):
    """One step of the image along the sign of the gradient of a loss: logits, features and latents are those after it.

    The step makes the network more certain of what it predicts, the more so for known classes (ODIN); in the other
    direction it is the fast gradient sign method, whose rows are the negatives of `safe`. Rows of a detector are those
    of its proposals, anchors or queries before the step. Images are not clipped to 0 … 1 after it, as in the published
    codes.

    Formula:
        x' = x − ε · sign(∇_x Σ_i L_i(x)), with the loss L of region i:
        "max_softmax": −log max_c softmax(z / T)_c; "max_logit": −max_c z_c;
        "mahalanobis": min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c)

    Args:
        epsilon: ε in pixels from 0 to 1: of a normalised input each channel moves by ε / its standard deviation, as in
            the published codes of ODIN, the Mahalanobis detector and OpenOOD. 0.0014 is ODIN's and OpenOOD's.
        loss: See the formula.
        temperature: T.
        direction: "down" the loss, or "up".
        per: "image": one step for the sum of the losses of all regions of an image; "region": a backward and a forward
            pass for each region of an image, by the gradient of its own loss. No paper defines the step for objects.
        background: Whether the background logit counts as a class.
        min_score: Detections with a lower score have no loss: they count neither in the sum nor in the means, and with
            `per: region` they keep their values. t* is taken after the passes, so the value is not taken from it.
        split: The split that μ_c and Σ are taken from, by predicted class, as in the method `mahalanobis`.
        protocol: "paper": sign(0) is 0; "published-code": it is 1.

    References:
        Liang et al., "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks" (ODIN),
        2018, arXiv:1706.02690. Code: https://github.com/facebookresearch/odin

        Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks",
        2018, arXiv:1807.03888. Code: https://github.com/pokaxpoka/deep_Mahalanobis_detector

        Goodfellow et al., "Explaining and Harnessing Adversarial Examples" (FGSM), 2015, arXiv:1412.6572.
    """

    needs_gradients: ClassVar[bool] = True
    epsilon: PositiveFloat = 0.0014
    loss: Literal["max_softmax", "max_logit", "mahalanobis"] = "max_softmax"
    temperature: PositiveFloat = 1000.0
    direction: Literal["down", "up"] = "down"
    per: Literal["image", "region"] = "image"
    background: Literal["drop", "keep"] = "drop"
    min_score: Fraction = 0.0
    split: str = "train"
    protocol: Protocol = "paper"

    #: Kept by `learn`.
    _gaussians: ClassVar[Gaussians | None] = None

    @property
    def backward_passes(self) -> int:
        """See `Pass.backward_passes`; with `per: region` there is one for each region."""
        return 1

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        check_replay(self, detector)

    def learn(self, regions: Path) -> None:
        """See `Pass.learn`.

        Raises:
            ParameterError: the detector stores no features, or found nothing in the split.
        """
        if self.loss == "mahalanobis":
            from farther.detectors.networks.perturbation import class_gaussians

            vars(self)["_gaussians"] = class_gaussians(RegionsFolder(regions / self.split, self.min_score))

    def identity(self) -> dict[str, Any]:
        """See `Pass.identity`."""
        learned = self._gaussians
        if learned is None:
            return super().identity()
        return {**super().identity(), "gaussians": digest(learned.means.tobytes(), learned.precision.tobytes())}

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        from farther.detectors.networks.perturbation import after_step

        return after_step(detector.replay(prepared), image_ids, self.step(detector.header()))

    def step(self, header: Header) -> Step:
        """The step that the parameters describe.

        Args:
            header: Header of the regions.

        Raises:
            ParameterError: the loss is "mahalanobis" and `learn` was not called.
        """
        from farther.detectors.networks import perturbation

        keep = self.background == "keep"
        columns = [k for k in range(len(header.classes)) if keep or k != header.background_index]
        if self.loss == "mahalanobis":
            if self._gaussians is None:
                raise ParameterError("the loss 'mahalanobis' needs the run's training regions: call `learn` first")
            loss = perturbation.mahalanobis(self._gaussians)
        elif self.loss == "max_softmax":
            loss = perturbation.max_softmax(columns, self.temperature)
        else:
            loss = perturbation.max_logit(columns)
        return perturbation.Step(
            loss=loss,
            size=self.epsilon if self.direction == "down" else -self.epsilon,
            per_region=self.per == "region",
            zero_is_positive=self.protocol == "published-code",
            min_score=self.min_score,
        )
