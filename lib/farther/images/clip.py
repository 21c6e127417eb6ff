"""CLIP, as open_clip loads it: images and names become vectors of length 1."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError, FartherError, ParameterError, first_line
from farther.images.bounds import refuse_larger
from farther.images.clip_config import check_folder
from farther.images.clip_patches import Patches
from farther.images.device import inference_mode, torch_device
from farther.naming.registry import STRICT, Parameters
from farther.tables.files import digest, regular_file
from farther.tables.folders import listed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Imported in functions: PyTorch and the packages of CLIP, which take seconds.

#: Beginnings of `model`; the rest is a folder or a name on the hub.
LOCAL = "local-dir:"
HUB = "hf-hub:"

#: Number of names that the text encoder embeds at once.
NAMES_AT_ONCE = 256


@dataclass(config=STRICT, kw_only=True)
class EncoderParams(Parameters):
    """Parameters of a CLIP, and its prompt for class names.

    Args:
        model: `local-dir:<folder>` with `open_clip_config.json` and weights beside it,
            `hf-hub:<owner>/<name>`, or the name of an architecture that open_clip ships
            ("ViT-B-32").
        pretrained: Weights of a shipped architecture: a tag that open_clip knows ("openai"), or a
            file.
        cache: Folder for weights from the hub; the hub's by default.
        template: Sentence for a class name; `{}` is its place.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
    """

    model: str = "ViT-B-32"
    pretrained: str | None = None
    cache: Path | None = None
    template: Annotated[str, Field(pattern=r"\{\}")] = "a photo of a {}"
    device: str = "auto"


@dataclass(config=STRICT, kw_only=True, frozen=True)
class ClipPreprocessing(Parameters):
    """Preprocessing of images for CLIP; it can be pickled without the network.

    Args:
        config: open_clip's: size, mean, std, interpolation, resize_mode, fill_color, mode.
    """

    config: dict[str, Any]

    @cached_property
    def _transform(self) -> Any:
        from open_clip.transform import PreprocessCfg, image_transform_v2

        return image_transform_v2(PreprocessCfg(**self.config), is_train=False)

    def prepare(self, image: np.ndarray) -> Any:
        """Resizes, scales and normalises an image.

        Args:
            image: uint8, shape (height, width, 3).

        Returns:
            float32 tensor, shape (3, height, width).
        """
        return self._transform(Image.fromarray(image))

    def pixels(self, image: Image.Image) -> np.ndarray:
        """Resizes an image as `prepare` does, without scaling and normalisation.

        Returns:
            ndarray of shape (height, width, 3), uint8.
        """
        for step in self._transform.transforms[:-2]:
            image = step(image)
        return np.asarray(image)

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config}


class Encoder:
    """A loaded CLIP; a pickled one leaves the network behind, and loads it again on first use.

    Args:
        params: Its parameters.

    Raises:
        FartherError: open_clip is not installed.
        ParameterError: there is no such model, folder, tag, weights file or device, or the weights
            do not fit.
    """

    def __init__(self, params: EncoderParams):
        self.params = params
        config = self.network.visual.preprocess_cfg
        self.preprocessing = ClipPreprocessing(config=json.loads(json.dumps(config)))

    @cached_property
    def device(self) -> torch.device:
        """The device that the network runs on."""
        return torch_device(self.params.device)

    @property
    def network(self) -> Any:
        """open_clip's model, on its device and in evaluation mode."""
        network, _ = self._loaded
        return network

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Origin of the embeddings: model, hash of its weights, preprocessing, and template."""
        content: list[Any] = []
        for name, tensor in sorted(self.network.state_dict().items()):
            content += [name, tensor.cpu().contiguous().numpy().tobytes()]
        return {
            "model": self.params.model,
            "pretrained": self.params.pretrained,
            "weights_digest": digest(*content),
            "preprocessing": self.preprocessing.config,
            "template": self.params.template,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {"params": self.params, "preprocessing": self.preprocessing}

    def images(self, prepared: Sequence[Any]) -> np.ndarray:
        """Embeddings of prepared images.

        Args:
            prepared: Output of `preprocessing.prepare` for each.

        Returns:
            ndarray of shape (number of images, D), float32, rows of length 1.
        """
        import torch

        with inference_mode():
            batch = torch.stack(list(prepared)).to(self.device)
            embeddings = self.network.encode_image(batch, normalize=True)
        return _of_length_one(embeddings.float().cpu().numpy())

    def pixels(
        self, pixels: np.ndarray, batch_size: int = 64, patch_by: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Embeddings of images that are resized, but not normalised yet: as `images`, in uint8.

        They are normalised on the device, and take one byte per value until then.

        Args:
            pixels: Output of `preprocessing.pixels` for N images, (N, height, width, 3), uint8.
            batch_size: Number of images that the network embeds at once.
            patch_by: Embeddings of K texts, rows of length 1, ndarray of shape (K, D). If given,
                one patch of each image is embedded too: that with the largest softmax probability
                of a text, of its cosines with the texts.

        Returns:
            Embeddings of the images and of those patches (None without `patch_by`), ndarrays of
            shape (N, D), float32, rows of length 1.

        Raises:
            ParameterError: patches are wanted, and the network is not one of those in `Patches`.
        """
        import torch

        patches = None
        text = None
        if patch_by is not None:
            patches = Patches(self.network.visual)
            text = torch.from_numpy(patch_by.astype(np.float32)).to(self.device)

        embeddings = []
        patch_embeddings = []
        with inference_mode():
            for start in range(0, len(pixels), batch_size):
                batch = self._normalised(pixels[start : start + batch_size])
                with nullcontext() if patches is None else patches.recording():
                    encoded = self.network.encode_image(batch, normalize=True)
                    embeddings.append(encoded.float().cpu().numpy())
                    if patches is not None and text is not None:
                        closest = _closest_patch(patches.embeddings(), text)
                        patch_embeddings.append(closest.cpu().numpy())

        images = _of_length_one(np.concatenate(embeddings))
        if not patch_embeddings:
            return images, None
        return images, _of_length_one(np.concatenate(patch_embeddings))

    def scale_and_bias(self) -> tuple[float, float]:
        """Scale and bias of the logits: logit = scale · cosine + bias.

        The bias is SigLIP's `logit_bias`; 0 for others.
        """
        scale = float(self.network.logit_scale.detach().exp())
        bias = getattr(self.network, "logit_bias", None)
        if bias is None:
            return scale, 0.0
        return scale, float(bias.detach())

    def names(self, names: Sequence[str], templates: Sequence[str] = ()) -> np.ndarray:
        """Embeddings of class names, each inserted into a sentence.

        Args:
            names: The names.
            templates: Sentences for a name, instead of the parameter `template`; their embeddings
                are averaged (Radford et al. 2021).

        Returns:
            ndarray of shape (number of names, D), float32, rows of length 1.
        """
        if not templates:
            return self._sentences([_sentence(self.params.template, name) for name in names])
        embeddings_by_template = []
        for template in templates:
            sentences = [_sentence(template, name) for name in names]
            embeddings_by_template.append(self._sentences(sentences))
        return _of_length_one(np.mean(embeddings_by_template, axis=0))

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """The network, on its device and in evaluation mode, and its tokenizer."""
        device = self.device
        model, tokenizer = _load(self.params)
        return model.to(device).eval(), tokenizer

    def _normalised(self, pixels: np.ndarray) -> Tensor:
        """Input of the network from resized images.

        Args:
            pixels: uint8, shape (B, height, width, 3).

        Returns:
            float32 tensor, shape (B, 3, height, width).
        """
        import torch

        config = self.preprocessing.config
        mean = torch.tensor(config["mean"], device=self.device)[:, None, None]
        std = torch.tensor(config["std"], device=self.device)[:, None, None]
        batch = torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2)
        return (batch.contiguous().float().div(255) - mean) / std

    def _sentences(self, sentences: Sequence[str]) -> np.ndarray:
        """Embeddings of sentences, rows of length 1; shape (0, 1) without sentences."""
        if not sentences:
            return np.zeros((0, 1), np.float32)
        network, tokenizer = self._loaded
        embeddings = []
        with inference_mode():
            for start in range(0, len(sentences), NAMES_AT_ONCE):
                tokens = tokenizer(sentences[start : start + NAMES_AT_ONCE]).to(self.device)
                encoded = network.encode_text(tokens, normalize=True)
                embeddings.append(encoded.float().cpu().numpy())
        return _of_length_one(np.concatenate(embeddings))


def _closest_patch(patches: Tensor, text: Tensor) -> Tensor:
    """The patch of each image with the largest softmax of its cosines with texts, at length 1.

    Args:
        patches: Embeddings of any length, shape (B, P, D).
        text: Rows of length 1, shape (K, D).

    Returns:
        Shape (B, D), float32.
    """
    import torch

    patches = torch.nn.functional.normalize(patches.float(), dim=-1)
    closest = (patches @ text.T).softmax(-1).amax(-1).argmax(1)
    return patches[torch.arange(len(patches)), closest]


def _sentence(template: str, name: str) -> str:
    return template.replace("{}", name)


def _load(params: EncoderParams) -> tuple[Any, Any]:
    """open_clip's model on the CPU, and its tokenizer."""
    try:
        import open_clip
    except ImportError as error:
        raise FartherError("embeddings are CLIP's: pip install 'farther[clip]'") from error
    _check_model(params)
    _refuse_remote_code()
    cache = None if params.cache is None else str(params.cache)
    try:
        if params.model.startswith(HUB):
            _check_hub(params.model.removeprefix(HUB), cache)
        if params.model.startswith(LOCAL):
            _refuse_larger(params.model, Path(params.model.removeprefix(LOCAL)))
        model = open_clip.create_model(
            params.model,
            params.pretrained,
            device="cpu",
            cache_dir=cache,
            require_pretrained=True,
            weights_only=True,
        )
        _check_preprocessing(model)
        return model, open_clip.get_tokenizer(params.model, cache_dir=cache)
    except (MemoryError, DataError):
        raise
    except Exception as error:  # open_clip raises RuntimeError, ValueError, KeyError, …
        problem = f"model {params.model!r}, pretrained {params.pretrained!r}: {first_line(error)}"
        raise ParameterError(problem) from None


def _check_preprocessing(model: Any) -> None:
    """Prepares one image, so that a wrong configuration is an error of the model, not of images."""
    preprocessing = ClipPreprocessing(config=model.visual.preprocess_cfg)
    preprocessing.prepare(np.zeros((2, 2, 3), np.uint8))


def _refuse_larger(model: str, folder: Path) -> None:
    """Refuses a folder that describes a larger network than its weights are."""
    import open_clip

    # Regular files only: a pipe would never end.
    files = [regular_file(file) for file in listed(folder, "*") if not file.is_dir()]
    build = partial(
        open_clip.create_model, model, load_weights=False, pretrained_text=False, device="meta"
    )
    try:
        with _without_warnings():  # open_clip warns that it loads no weights
            refuse_larger(folder / "open_clip_config.json", files, build)
    except DataError as error:
        if error.__cause__ is None:
            raise
        # It cannot be built at all: open_clip reports why when it loads the model.


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Logs no warnings while a block runs."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


def _check_model(params: EncoderParams) -> None:
    """Refuses parameters that open_clip ignores without a message.

    These are weights that are named twice, and a folder without a configuration.
    """
    has_own_weights = params.model.startswith((LOCAL, HUB))
    if has_own_weights and params.pretrained is not None:
        raise ParameterError(
            f"parameter 'pretrained': {params.model!r} includes weights; leave it out"
        )
    if not has_own_weights and params.pretrained is None:
        raise ParameterError(
            f"parameter 'pretrained': {params.model!r} is an architecture; name its weights by a "
            f"tag or a file, or give '{LOCAL}<folder>' or '{HUB}<owner>/<name>' as the model"
        )
    if params.model.startswith(LOCAL):
        folder = Path(params.model.removeprefix(LOCAL))
        if not (folder / "open_clip_config.json").is_file():
            raise ParameterError(f"parameter 'model': {folder} holds no open_clip_config.json")
        check_folder(folder)


def _refuse_remote_code() -> None:
    """Makes transformers refuse tokenizers with code of their own.

    By default it would ask in a terminal whether to run it.
    """
    try:
        from transformers import dynamic_module_utils
    except ImportError:
        return
    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0


def _check_hub(name: str, cache: str | None) -> None:
    """Fetches the configuration of a model on the hub and of its tokenizer, and checks them."""
    from open_clip.pretrained import download_pretrained_from_hf

    config = download_pretrained_from_hf(name, filename="open_clip_config.json", cache_dir=cache)
    check_folder(Path(config).parent)


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    """The rows, shape (N, D), divided by their length again: in float32, not the network's type."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
