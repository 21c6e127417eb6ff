"""Image classifiers of the `transformers` library: ViT, Swin, ConvNeXt, DINOv2, ResNet, …."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

from farther.detectors.base import register
from farther.detectors.hub import (
    CONFIG,
    PROCESSOR,
    HubDetector,
    architecture,
    class_names,
    load_folder,
    model_folder,
    read_description,
    require_files,
    silenced_transformers,
    weight_files,
)
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.detectors.scaling import Scaled
from farther.detectors.whole_images import (
    ClassifierNetwork,
    ImageClassifier,
    Normalisation,
    three_quarters_through,
)
from farther.errors import DataError, ParameterError
from farther.images.bounds import MOST_PIXELS, network_errors, refuse_larger
from farther.naming.registry import STRICT


@register("transformers_classifier")
@dataclass(config=STRICT, kw_only=True)
class TransformersClassifier(HubDetector, ImageClassifier):
    """A model of transformers' `AutoModelForImageClassification`.

    Code on the hub is never run. Logits are the model's, and `features` is the input of the linear
    layer that yields them, which is the header's last layer. A model with another last layer (DeiT
    with a teacher averages two) has neither. Images are prepared by the model's own processor.

    Args:
        weights: A folder as transformers saves it (`config.json`, `preprocessor_config.json`,
            `model.safetensors` or its shards), or the name of a model on the hub (`owner/name`).
        latent: See `ImageClassifier`; the default is the module three quarters through the
            outermost list of modules.
        classes: Names for the classes, in the order of the logits, instead of the checkpoint's.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("config.json",)

    classes: tuple[str, ...] | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """A folder of transformers with a classifier; see `Adapter`."""
        if architecture(path).endswith("ForImageClassification"):
            return RecognisedFile()
        return None

    @cached_property
    def folder(self) -> Path:
        """The folder of the model's files.

        Raises:
            DataError: it does not exist, or lacks a file.
        """
        folder = model_folder(self)
        needed = f"a model needs {CONFIG}, {PROCESSOR} and safetensors"
        require_files([*weight_files(folder), folder / CONFIG, folder / PROCESSOR], needed)
        return folder

    def content(self) -> tuple[Path, ...]:
        """See `Detector.content`."""
        return (*weight_files(self.folder), self.folder / CONFIG, self.folder / PROCESSOR)

    @cached_property
    def network(self) -> ClassifierNetwork:
        """See `Detector.network`.

        A default `latent` that cannot be averaged over an image is left out.
        """
        config_file = self.folder / CONFIG
        weights = weight_files(self.folder)
        with network_errors(self.weights):
            black_image = np.zeros((64, 64, 3), np.uint8)
            height, width = self.prepare(black_image).pixels.shape[1:]
            read_description(config_file)
            with network_errors(config_file, "built"):
                config = AutoConfig.from_pretrained(
                    self.folder, trust_remote_code=False, local_files_only=True
                )
            built = refuse_larger(
                config_file, weights, lambda: AutoModelForImageClassification.from_config(config)
            )
            network = load_folder(built, config, self.folder)
            network = network.to(self.torch_device())
            create = partial(
                ClassifierNetwork,
                network,
                (height, width),
                normalisation=normalisation_of(self.processor),
                layers=self.layers(),
            )
            if self.latent:
                return create(latent=self.latent)
            try:
                return create(latent=three_quarters_through(network))
            except ParameterError:
                return create()

    @cached_property
    def processor(self) -> Any:
        """See `HubDetector.processor`."""
        read_description(self.folder / PROCESSOR, MOST_PIXELS)
        try:
            with silenced_transformers():
                return AutoImageProcessor.from_pretrained(
                    self.folder, trust_remote_code=False, local_files_only=True
                )
        except Exception as error:  # each processor raises different errors
            problem = f"transformers cannot load this image processor: {str(error).strip()[:400]}"
            raise DataError(problem, file=self.folder / PROCESSOR) from None

    def class_names(self) -> tuple[str, ...]:
        """See `ImageClassifier.class_names`."""
        file = self.folder / CONFIG
        return self.classes or tuple(class_names(file, read_description(file)))

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, resized, rescaled and normalised by the checkpoint's image processor."""
        prepared = super().prepare(image)
        return Scaled(prepared.pixels.numpy(), prepared.original)


def normalisation_of(processor: Any) -> Normalisation:
    """Mean and standard deviation by which an image processor normalises pixels from 0 to 1."""
    largest = 255
    if processor.do_rescale:
        largest = 255 * processor.rescale_factor
    mean = (0.0, 0.0, 0.0)
    std = (1.0, 1.0, 1.0)
    if processor.do_normalize:
        mean = processor.image_mean
        std = processor.image_std
    return tuple(value / largest for value in mean), tuple(value / largest for value in std)
