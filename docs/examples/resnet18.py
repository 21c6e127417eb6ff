"""torchvision's ResNet-18 as a classifier: the only region of an image is the whole image."""

from functools import cached_property

import numpy as np
from PIL import Image

from farther import Detector, register
from farther.tables import Header, Regions


@register("resnet18")
class ResNet18(Detector):
    """A state dict of torchvision's ResNet-18.

    Args:
        classes: Class names, in the order of the logits.
        side: Side of the squares that images are resized to, in pixels.
    """

    classes: tuple[str, ...]
    side: int = 224

    @cached_property
    def network(self):
        import torch
        from torchvision.models import resnet18

        network = resnet18(num_classes=len(self.classes))
        network.load_state_dict(torch.load(self.weights, map_location="cpu", weights_only=True))
        return network.to(self.torch_device()).eval()

    def header(self) -> Header:
        last = self.network.fc
        return Header(
            classes=self.classes,
            whole_images=True,
            detector=self.identity,
            weight=last.weight.detach().cpu().numpy(),
            bias=last.bias.detach().cpu().numpy(),
        )

    def prepare(self, image: np.ndarray) -> tuple:
        scaled = Image.fromarray(image).resize((self.side, self.side))
        return np.asarray(scaled), image.shape[:2]

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        import torch

        pixels = torch.from_numpy(np.stack([pixels for pixels, _ in prepared])).to(
            self.torch_device()
        )
        inputs = []
        hook = self.network.fc.register_forward_pre_hook(
            lambda layer, given: inputs.append(given[0])
        )
        with torch.inference_mode():
            logits = self.network(pixels.permute(0, 3, 1, 2).float() / 255)
        hook.remove()
        score, label = logits.softmax(dim=1).max(dim=1)
        return Regions(
            header=self.header(),
            image_id=image_ids,
            region_id=np.arange(len(image_ids)),
            box=np.array([[0, 0, width, height] for _, (height, width) in prepared]),
            score=score.cpu().numpy(),
            label=label.cpu().numpy(),
            logits=logits.cpu().numpy(),
            features=inputs[0].cpu().numpy(),
        )
