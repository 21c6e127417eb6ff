"""Open-vocabulary detectors in folders of the `transformers` library: files, image processor, tokenizer and network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.networks.detr import quiet
from farther.detectors.networks.detr_inference import make_processor
from farther.detectors.networks.pretrained import load_pretrained
from farther.detectors.networks.transformers_files import (
    CONFIG,
    PROCESSOR,
    WHOLE_PROCESSOR,
    fetched,
    read_description,
    weight_files,
)
from farther.errors import DataError, ParameterError, first_line, shorten
from farther.images.bounds import MOST_PIXELS, network_errors, refuse_larger
from farther.tables.documents import read_json

#: Files of a tokenizer; a folder has the first, or those of one of the vocabularies.
TOKENIZER, VOCABULARIES = "tokenizer.json", (("vocab.json", "merges.txt"), ("vocab.txt",))
TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER_FILES = (TOKENIZER, "vocab.json", "merges.txt", "vocab.txt", TOKENIZER_CONFIG)
TOKENIZER_NOTES = ("special_tokens_map.json", "added_tokens.json")

#: Networks by `model_type`: transformers' classes of the network and of its tokenizer.
CLASSES = {
    "owlv2": ("Owlv2ForObjectDetection", "CLIPTokenizer"),
    "grounding-dino": ("GroundingDinoForObjectDetection", "BertTokenizer"),
    "mm-grounding-dino": ("MMGroundingDinoForObjectDetection", "BertTokenizer"),
    "omdet-turbo": ("OmDetTurboForObjectDetection", "CLIPTokenizer"),
}


@dataclass(frozen=True)
class Folder:
    """A folder of a network, its configuration read.

    Args:
        path: The folder.
        config: Content of `config.json`.
        processor: Preprocessing of images.
        files: All files that results depend on.
    """

    path: Path
    config: dict[str, Any]
    processor: dict[str, Any]
    files: tuple[Path, ...]

    @property
    def model_type(self) -> str:
        """The kind of network, one of `CLASSES`."""
        return self.config["model_type"]


def find_folder(weights: Path, revision: str | None = None, *, local_files_only: bool = False) -> Folder:
    """The folder of a network, fetched from the hub where it is a name there; no weights are read.

    Raises:
        DataError: it does not exist, lacks a file, describes another kind of network, or names code.
    """
    more = (WHOLE_PROCESSOR, *TOKENIZER_FILES, *TOKENIZER_NOTES)
    path = fetched(weights, revision, local_files_only=local_files_only, more=more)
    if not path.is_dir():
        raise DataError("expected a folder as transformers saves it, or the name of a model on the hub", file=weights)
    described = path / PROCESSOR if (path / PROCESSOR).is_file() else path / WHOLE_PROCESSOR
    for file in (path / CONFIG, *weight_files(path)):
        _check_there(file)
    if not described.is_file():
        _check_there(path / PROCESSOR)
    vocabulary = next((names for names in VOCABULARIES if (path / names[0]).is_file()), (TOKENIZER,))
    tokenizer = (TOKENIZER,) if (path / TOKENIZER).is_file() else vocabulary
    for name in tokenizer:
        _check_there(path / name)
    names = [name for name in (*TOKENIZER_FILES, *TOKENIZER_NOTES) if (path / name).is_file()]
    config, processor = read_description(path / CONFIG), read_description(described, MOST_PIXELS)
    if described.name == WHOLE_PROCESSOR and isinstance(processor, dict):
        processor = processor.get("image_processor")
    contents = {path / CONFIG: config, described: processor}
    if TOKENIZER_CONFIG in names:
        contents[path / TOKENIZER_CONFIG] = read_json(path / TOKENIZER_CONFIG)
    for file, content in contents.items():
        if not isinstance(content, dict):
            raise DataError(f"expected an object, found {shorten(content)}", file=file)
        if "auto_map" in content:
            problem = "names code of the checkpoint, which is never run: use a model that transformers itself has"
            raise DataError(problem, file=file, field="auto_map")
    if config.get("model_type") not in CLASSES:
        problem = f"{shorten(config.get('model_type'))} is none of {', '.join(CLASSES)}"
        raise DataError(problem, file=path / CONFIG, field="model_type")
    files = (*weight_files(path), path / CONFIG, described, *(path / name for name in names))
    return Folder(path, config, processor, files)


def load_processor(folder: Folder) -> BaseImageProcessor:
    """The image processor of a folder.

    Raises:
        DataError: transformers does not know it, or refuses its fields.
    """
    try:
        return make_processor(folder.processor)
    except ParameterError as error:
        raise DataError(str(error), file=folder.path / PROCESSOR) from None


def load_tokenizer(folder: Folder) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, of the class that the network was trained with.

    Raises:
        DataError: a file is damaged.
    """
    tokenizer_class = getattr(transformers, CLASSES[folder.model_type][1])
    file = next(file for file in folder.files if file.name in TOKENIZER_FILES)
    try:
        with quiet():
            return tokenizer_class.from_pretrained(folder.path, local_files_only=True)
    except Exception as error:  # whatever its reader met
        raise DataError(f"transformers cannot read the tokenizer: {first_line(error)}", file=file) from None


def load_network(folder: Folder) -> PreTrainedModel:
    """The network of a folder, in float32, in evaluation mode.

    Raises:
        DataError: transformers cannot build it, or the weights are absent, damaged or do not fit.
    """
    file, weights = folder.path / CONFIG, weight_files(folder.path)
    network_class: Any = getattr(transformers, CLASSES[folder.model_type][0])
    with network_errors(file, "built"), quiet():
        config = AutoConfig.for_model(folder.model_type, **_of_local_parts(folder))
    with quiet():
        refuse_larger(file, weights, lambda: network_class(config))
    return load_pretrained(network_class, folder.path, weights[0], config=config)


def _of_local_parts(folder: Folder) -> dict[str, Any]:
    """The fields of a configuration; a backbone by name, as older releases write it, is timm's.

    transformers would ask the hub for a model of that name.
    """
    fields = {name: value for name, value in folder.config.items() if name != "model_type"}
    named, settings = fields.get("backbone"), fields.get("backbone_kwargs") or {}
    by_default = folder.model_type == "omdet-turbo" and not settings  # transformers knows these settings by itself
    if named is not None and fields.get("backbone_config") is None and not by_default:
        if not fields.get("use_timm_backbone", True):
            problem = f"names a model on the hub, {shorten(named)}: give its configuration as 'backbone_config'"
            raise DataError(problem, file=folder.path / CONFIG, field="backbone")
        fields = {name: value for name, value in fields.items() if name not in ("backbone", "backbone_kwargs")}
        fields["backbone_config"] = {"model_type": "timm_backbone", "backbone": named, **settings}
    return fields


def _check_there(file: Path) -> None:
    if not file.is_file():
        needed = f"{CONFIG}, {PROCESSOR} or {WHOLE_PROCESSOR}, safetensors, and {TOKENIZER} or a vocabulary"
        raise DataError(f"the file does not exist: a model needs {needed}", file=file)
