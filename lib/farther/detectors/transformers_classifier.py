"""Image classifiers of the `transformers` library: ViT, Swin, ConvNeXt, DINOv2, BEiT, ResNet and others."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.scaling import Scaled
from farther.detectors.whole_images import ImageClassifier
from farther.images.bounds import network_errors
from farther.registry import STRICT
from farther.tables.files import digest

if TYPE_CHECKING:
    from transformers.image_processing_utils import BaseImageProcessor

    from farther.detectors.networks.classification import Classifier


@register("transformers_classifier")
@dataclass(config=STRICT, kw_only=True)
class TransformersClassifier(ImageClassifier):
    """A model that `AutoModelForImageClassification` of transformers loads; code on the hub is never run.

    Logits are the model's, and `features` is the input of the linear layer that they come from, which is the header's
    last layer. A model whose logits come from another layer (DeiT with a teacher averages two) has neither. Images are
    prepared by the model's own processor.

    Args:
        weights: A folder as transformers saves it (`config.json`, `preprocessor_config.json`, `model.safetensors` or
            its shards), or the name of a model on the hub (`owner/name`).
        latent: See `ImageClassifier`; the default is the module three quarters through the outermost list of modules.
        classes: Names for the classes, in the order of the logits, instead of the checkpoint's.
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it was fetched before.
    """

    FROM_HUB: ClassVar[bool] = True

    classes: tuple[str, ...] | None = None
    revision: str | None = None
    local_files_only: bool = False

    @cached_property
    def folder(self) -> Path:
        """The folder of the model's files.

        Raises:
            DataError: it does not exist, or lacks a file.
        """
        from farther.detectors.networks.transformers_classifier import find_folder

        return find_folder(self.weights, self.revision, local_files_only=self.local_files_only)

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`."""
        from farther.detectors.networks.transformers_classifier import files_of
        from farther.detectors.networks.transformers_files import with_index

        return with_index(files_of(self.folder))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """See `Detector.identity`; the content of the folder counts, its place does not."""
        from farther.detectors.networks.transformers_classifier import files_of

        places = ("weights", "device", "revision", "local_files_only")
        params = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in places}
        return {"name": self.name, "weights_digest": digest(*files_of(self.folder)), "params": params}

    @cached_property
    def network(self) -> Classifier:
        """See `Detector.network`."""
        from farther.detectors.networks.transformers_classifier import load_classifier

        with network_errors(self.weights):
            sample = self.prepare(np.zeros((64, 64, 3), np.uint8)).pixels.shape[1:]
            return load_classifier(self.folder, self.torch_device(), (sample[0], sample[1]), self.latent, self.layers())

    @cached_property
    def processor(self) -> BaseImageProcessor:
        """The checkpoint's image processor; errors as in `load_processor`."""
        from farther.detectors.networks.transformers_classifier import load_processor

        return load_processor(self.folder)

    def class_names(self) -> tuple[str, ...]:
        """See `ImageClassifier.class_names`."""
        from farther.detectors.networks.transformers_classifier import classes_in

        return self.classes or classes_in(self.folder)

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, resized, rescaled and normalised by the checkpoint's image processor."""
        given = [np.ascontiguousarray(image)]
        with network_errors(self.weights):
            prepared = self.processor(images=given, input_data_format="channels_last", return_tensors="np")
            return Scaled(np.asarray(prepared["pixel_values"][0], np.float32), (image.shape[0], image.shape[1]))
