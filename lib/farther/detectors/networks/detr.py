"""Families of detection transformers in the `transformers` library, and building of their networks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from farther.detectors.settings import PerQuery
from farther.errors import ParameterError, shorten
from farther.tables.header import Activation

# The hub's library reports its use, unless it is told not to.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from transformers import AutoConfig, AutoModelForObjectDetection, PreTrainedModel
from transformers import logging as transformers_logging

LastLayer = Literal["linear", "with quality"]


@dataclass(frozen=True)
class Family:
    """A kind of network: names of the modules whose inputs and outputs OOD methods read.

    Args:
        head: The class head; of a list of heads, the one of the last decoder layer.
        activation: Turns logits into scores; with "softmax" the last column is "no object".
        boxes: The heads that boxes come from, if they are outside the decoder.
        encoder: Its output is the latent map: the first encoder module, as in the published FMIYC code.
        maps: If that output is a sequence of tokens: the projections whose outputs were flattened into it.
        proposals: In networks whose queries are the best of many proposals: the module that scores these; of a list,
            its last item.
        last_layer: "linear" if logits are the head's output. D-FINE adds one number, the quality of the box, to all
            logits of a query.
    """

    head: str
    activation: Activation
    boxes: str | None = None
    encoder: str | None = None
    maps: str | None = None
    proposals: str | None = "model.enc_score_head"
    last_layer: LastLayer = "linear"

    @property
    def per_query(self) -> PerQuery:
        """Default of `Selection.per_query`."""
        return "several" if self.activation == "sigmoid" else "one"


FAMILIES = {
    "rt_detr": Family("model.decoder.class_embed", "sigmoid", None, "model.encoder.aifi.0"),
    "rt_detr_v2": Family("model.decoder.class_embed", "sigmoid", None, "model.encoder.aifi.0"),
    "d_fine": Family("model.decoder.class_embed", "sigmoid", None, "model.encoder.aifi.0", last_layer="with quality"),
    "detr": Family(
        "class_labels_classifier", "softmax", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"
    ),
    "table-transformer": Family(
        "class_labels_classifier", "softmax", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"
    ),
    "conditional_detr": Family(
        "class_labels_classifier", "sigmoid", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"
    ),
    "dab-detr": Family("class_embed", "sigmoid", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"),
    "deformable_detr": Family(
        "class_embed",
        "sigmoid",
        "bbox_embed",
        "model.encoder.layers.0",
        "model.input_proj",
        "model.decoder.class_embed",
    ),
}


@dataclass(frozen=True)
class DetrBlueprint:
    """Description from which a network is built; its weights are stored beside it.

    Args:
        config: Content of `config.json`; `model_type` is the family.
        processor: Preprocessing of images, the content of `preprocessor_config.json`.
        classes: The known classes, without "no object", in the order of the logits.
    """

    config: dict[str, Any]
    processor: dict[str, Any]
    classes: tuple[str, ...]

    @property
    def family(self) -> Family:
        """The family; errors as in `family_of`."""
        return family_of(self.config.get("model_type"))

    def columns(self) -> tuple[tuple[str, ...], int | None]:
        """Name of each logits column, and which one is "no object" (None with a sigmoid)."""
        if self.family.activation == "sigmoid":
            return self.classes, None
        return (*self.classes, NO_OBJECT), len(self.classes)


NO_OBJECT = "no object"


def family_of(model_type: Any) -> Family:
    """The family of a model type of `transformers`.

    Raises:
        ParameterError: it is not in `FAMILIES`.
    """
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        why = "their class head is not one linear layer on the output of a DETR decoder, or they are untested"
        raise ParameterError(
            f"model type {shorten(model_type)} is none of {', '.join(FAMILIES)}. Others are refused: {why}"
        )
    return FAMILIES[model_type]


def make_config(blueprint: DetrBlueprint) -> Any:
    """The configuration object of a blueprint.

    Raises:
        ParameterError: the model type or a field is unknown, or a class occurs twice or is called "no object".
    """
    names, _ = blueprint.columns()
    if len(set(names)) != len(names):
        raise ParameterError(f"a class occurs twice in {list(names)}; name the classes with the parameter 'classes'")
    kept = {k: v for k, v in blueprint.config.items() if k not in ("model_type", "id2label", "label2id", "num_labels")}
    try:
        config = AutoConfig.for_model(blueprint.config["model_type"], **kept)
    except Exception as error:  # each configuration class raises different errors
        raise ParameterError(f"transformers refuses the configuration: {str(error).strip()[:400]}") from None
    config.id2label = dict(enumerate(blueprint.classes))
    config.label2id = {name: k for k, name in enumerate(blueprint.classes)}
    if getattr(config, "use_pretrained_backbone", None):
        config.use_pretrained_backbone = False  # its weights come with the checkpoint
    return config


def build_network(blueprint: DetrBlueprint, attention: Literal["eager"] | None = None) -> PreTrainedModel:
    """An untrained network in training mode, seeded by PyTorch's global generator.

    Args:
        attention: Implementation: None leaves it to transformers, "eager" is faster in training on a CPU.

    Raises:
        ParameterError: the configuration is unknown to transformers, or needs a package that is not installed.
    """
    config = make_config(blueprint)
    try:
        with quiet():
            network = AutoModelForObjectDetection.from_config(config, attn_implementation=attention)
    except (ImportError, ValueError, TypeError, RuntimeError) as error:
        raise ParameterError(f"transformers cannot build this network: {str(error).strip()[:400]}") from None
    return network.train()


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers from writing to the terminal for a while."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def class_head(network: PreTrainedModel) -> nn.Linear:
    """The linear layer that makes the last decoder layer's logits."""
    head = network.get_submodule(family_of(network.config.model_type).head)
    if isinstance(head, nn.ModuleList):
        # A two-stage network has one more head, behind the decoder's: that of its proposals.
        head = head[network.config.decoder_layers - 1]
    assert isinstance(head, nn.Linear)
    return head


def keep_exact(network: PreTrainedModel) -> None:
    """Lets the decoder and the heads compute in float32 inside `torch.autocast`: boxes and logits need all digits."""
    family = family_of(network.config.model_type)
    device = next(network.parameters()).device.type
    modules = [network.get_submodule("model.decoder"), class_head(network)]
    if family.boxes is not None:
        modules.append(network.get_submodule(family.boxes))
    for module in modules:
        for part in module if isinstance(module, nn.ModuleList) else [module]:
            part.forward = in_float32(part.forward, device)


def in_float32(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The function with floating-point arguments in float32 and autocast off, on a type of device ("cpu", "cuda")."""

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return function(*_float32(args), **_float32(kwargs))

    return exact


def _float32(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _float32(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_float32(item) for item in value)
    return value
