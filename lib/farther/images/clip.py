"""CLIP, as open_clip loads it: images and names become vectors of length 1."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError, FartherError, ParameterError, first_line
from farther.images.clip_config import check_folder
from farther.images.clip_patches import Patches
from farther.images.device import inference_mode, torch_device
from farther.registry import STRICT
from farther.tables.files import digest, regular_file
from farther.tables.folders import listed

if TYPE_CHECKING:
    import torch

#: What `model` may start with; the rest is a folder or a name on the hub.
LOCAL, HUB = "local-dir:", "hf-hub:"

#: Names that the text encoder sees at once.
NAMES_AT_ONCE = 256


@dataclass(config=STRICT, kw_only=True)
class EncoderParams:
    """The CLIP, and its prompt for class names.

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
class ClipPreprocessing:
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
        """A float32 tensor of shape (3, height, width) from uint8 pixels of shape (height, width, 3)."""
        return self._transform(Image.fromarray(image))

    def pixels(self, image: Image.Image) -> np.ndarray:
        """What `prepare` gives before it is scaled and normalised, ndarray of shape (height, width, 3), uint8."""
        for step in self._transform.transforms[:-2]:
            image = step(image)
        return np.asarray(image)

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config}


class Encoder:
    """A loaded CLIP. A pickled encoder leaves the network behind, and loads it again where it is needed.

    Args:
        params: Which one.

    Raises:
        FartherError: open_clip is not installed.
        ParameterError: there is no such model, folder, tag, weights file or device, or the weights
            do not fit.
    """

    def __init__(self, params: EncoderParams):
        self.params = params
        self.preprocessing = ClipPreprocessing(
            config=json.loads(json.dumps(self.network.visual.preprocess_cfg))
        )

    @cached_property
    def device(self) -> torch.device:
        """The device that the network runs on."""
        return torch_device(self.params.device)

    @cached_property
    def network(self) -> Any:
        """open_clip's model, on its device and in evaluation mode."""
        device = self.device
        model, self._tokenizer = _load(self.params)
        return model.to(device).eval()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Origin of the embeddings: the model's name, a digest of its weights, preprocessing, and template."""
        state = self.network.state_dict()
        parts = [
            part
            for name in sorted(state)
            for part in (name, state[name].cpu().contiguous().numpy().tobytes())
        ]
        return {
            "model": self.params.model,
            "pretrained": self.params.pretrained,
            "weights_digest": digest(*parts),
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
            found = self.network.encode_image(batch, normalize=True)
        return _of_length_one(found.float().cpu().numpy())

    def pixels(
        self, pixels: np.ndarray, batch_size: int = 64, patch_by: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Embeddings of what `preprocessing.pixels` gives; normalised on the device, and one byte per value until then.

        Args:
            pixels: ndarray of shape (N, height, width, 3), uint8.
            batch_size: Images that the network sees at once.
            patch_by: Embeddings of texts, rows of length 1, ndarray of shape (K, D): of each image
                the patch with the largest softmax of its cosines with them is embedded too.

        Returns:
            Embeddings of the images and of those patches (None without `patch_by`), ndarrays of
            shape (N, D), float32, rows of length 1.

        Raises:
            ParameterError: patches are asked for, and the network is not one of those in `Patches`.
        """
        import torch

        config = self.preprocessing.config
        mean, std = (
            torch.tensor(config[name], device=self.device)[:, None, None]
            for name in ("mean", "std")
        )
        patches = None if patch_by is None else Patches(self.network.visual)
        text = (
            None
            if patch_by is None
            else torch.from_numpy(patch_by.astype(np.float32)).to(self.device)
        )
        found, best = [], []
        with inference_mode():
            for start in range(0, len(pixels), batch_size):
                batch = (
                    torch.from_numpy(pixels[start : start + batch_size])
                    .to(self.device)
                    .permute(0, 3, 1, 2)
                )
                prepared = (batch.contiguous().float().div(255) - mean) / std
                with nullcontext() if patches is None else patches.taken():
                    found.append(
                        self.network.encode_image(prepared, normalize=True).float().cpu().numpy()
                    )
                    if patches is not None and text is not None:
                        local = torch.nn.functional.normalize(patches.embeddings().float(), dim=-1)
                        chosen = (local @ text.T).softmax(-1).amax(-1).argmax(1)
                        best.append(local[torch.arange(len(local)), chosen].cpu().numpy())
        return _of_length_one(np.concatenate(found)), _of_length_one(
            np.concatenate(best)
        ) if best else None

    def scale_and_bias(self) -> tuple[float, float]:
        """Logits are scale · cosine + bias (SigLIP's `logit_bias`; 0 for others)."""
        bias = getattr(self.network, "logit_bias", None)
        return float(self.network.logit_scale.detach().exp()), 0.0 if bias is None else float(
            bias.detach()
        )

    def names(self, names: Sequence[str], templates: Sequence[str] = ()) -> np.ndarray:
        """Embeddings of class names, each in the sentence that `template` makes of it.

        Args:
            templates: Sentences for a name, instead of `template`; their embeddings are averaged
                (Radford et al. 2021).

        Returns:
            ndarray of shape (number of names, D), float32, rows of length 1.
        """
        if templates:
            each = [
                self._sentences([template.replace("{}", name) for name in names])
                for template in templates
            ]
            return _of_length_one(np.mean(each, axis=0))
        return self._sentences([self.params.template.replace("{}", name) for name in names])

    def _sentences(self, sentences: Sequence[str]) -> np.ndarray:

        found, network = [], self.network
        with inference_mode():
            for start in range(0, len(sentences), NAMES_AT_ONCE):
                tokens = self._tokenizer(sentences[start : start + NAMES_AT_ONCE]).to(self.device)
                found.append(network.encode_text(tokens, normalize=True).float().cpu().numpy())
        return _of_length_one(np.concatenate(found)) if found else np.zeros((0, 1), np.float32)


def _load(params: EncoderParams) -> tuple[Any, Any]:
    """open_clip's model on the CPU, and its tokenizer."""
    try:
        import open_clip
    except ImportError as error:
        raise FartherError("embeddings are CLIP's: pip install 'farther[clip]'") from error
    _check_place(params)
    cache = None if params.cache is None else str(params.cache)
    _never_ask_for_code()
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
        return model, open_clip.get_tokenizer(params.model, cache_dir=cache)
    except (MemoryError, DataError):
        raise
    except (
        Exception
    ) as error:  # open_clip answers with nearly anything: RuntimeError, ValueError, KeyError, …
        problem = f"model {params.model!r}, pretrained {params.pretrained!r}: {first_line(error)}"
        raise ParameterError(problem) from None


def _refuse_larger(model: str, folder: Path) -> None:
    """Refuses a folder that describes a larger network than its weights are."""
    import open_clip

    from farther.images.bounds import refuse_larger

    files = [
        regular_file(file) for file in listed(folder, "*") if not file.is_dir()
    ]  # a pipe would never end
    build = partial(open_clip.create_model, model, load_weights=False, device="meta")
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))  # open_clip warns that it loads no weights
    try:
        refuse_larger(folder / "open_clip_config.json", files, build)
    except DataError as error:
        if (
            error.__cause__ is None
        ):  # else it cannot be built at all, and open_clip's own error says why
            raise
    finally:
        logging.disable(before)


def _check_place(params: EncoderParams) -> None:
    """Refuses what open_clip would pass over in silence: weights named twice, a folder without a configuration."""
    has_own_weights = params.model.startswith((LOCAL, HUB))
    if has_own_weights and params.pretrained is not None:
        raise ParameterError(
            f"parameter 'pretrained': {params.model!r} includes weights; leave it out"
        )
    if not has_own_weights and params.pretrained is None:
        raise ParameterError(
            f"parameter 'pretrained': {params.model!r} is an architecture; name its weights by a tag or a file, "
            f"or give '{LOCAL}<folder>' or '{HUB}<owner>/<name>' as the model"
        )
    if params.model.startswith(LOCAL):
        folder = Path(params.model.removeprefix(LOCAL))
        if not (folder / "open_clip_config.json").is_file():
            raise ParameterError(f"parameter 'model': {folder} holds no open_clip_config.json")
        check_folder(folder)


def _never_ask_for_code() -> None:
    """Makes transformers refuse tokenizers with code of their own; it would ask in a terminal whether to run it."""
    try:
        from transformers import dynamic_module_utils
    except ImportError:
        return
    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0


def _check_hub(name: str, cache: str | None) -> None:
    """Fetches the configuration of a model on the hub, and that of its tokenizer, and checks them as in a folder."""
    from open_clip.pretrained import download_pretrained_from_hf

    config = Path(
        download_pretrained_from_hf(name, filename="open_clip_config.json", cache_dir=cache)
    )
    check_folder(config.parent)


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    """Rows at unit length in float32, whatever precision the network divided in."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
