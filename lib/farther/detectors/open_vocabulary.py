"""Open-vocabulary detectors of the `transformers` library: OWLv2, Grounding DINO, OmDet-Turbo."""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import transformers
from pydantic import Field
from pydantic.dataclasses import dataclass
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.base import Count, Fraction, register
from farther.detectors.hub import (
    CONFIG,
    PROCESSOR,
    HubDetector,
    load_folder,
    make_processor,
    model_folder,
    read_config,
    read_description,
    require_files,
    silenced_transformers,
    weight_files,
)
from farther.detectors.networks.open_vocabulary import (
    NETWORKS,
    OpenVocabularyNetwork,
    detect_regions,
)
from farther.detectors.prompts import Prompts, Templates, Unknown
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.detectors.settings import BoxSelection
from farther.errors import DataError, ParameterError, first_line, shorten
from farther.images.bounds import MOST_PIXELS, network_errors, refuse_larger
from farther.images.device import inference_mode
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.documents import read_json
from farther.tables.files import is_file

#: The description of a complete processor, which recent releases save: that of the image processor
#: is a field.
WHOLE_PROCESSOR = "processor_config.json"

#: The file of a tokenizer; older folders have the files of one of the vocabularies instead.
TOKENIZER = "tokenizer.json"
VOCABULARIES = (("vocab.json", "merges.txt"), ("vocab.txt",))
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


@plain_dataclass(frozen=True)
class OpenVocabularyFolder:
    """A folder of a network, with its configuration.

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


@register("open_vocabulary")
@dataclass(config=STRICT, kw_only=True)
class OpenVocabulary(HubDetector):
    """A detector whose classes are prompts.

    The network is that of the configuration's `model_type`: OWLv2 (`owlv2`), Grounding DINO
    (`grounding-dino`), MM Grounding DINO (`mm-grounding-dino`) and OmDet-Turbo (`omdet-turbo`).
    Boxes, scores and labels are those of transformers'
    `post_process_grounded_object_detection`, except that a Grounding DINO's score is the largest
    over the tokens of prompts, without the separators. Code on the hub is never run. The prompts
    are embedded once per run.

    Logits are before the sigmoid, one column per prompt. In OWLv2 and OmDet-Turbo they are
    features @ weight.T, where `weight` is the text embeddings, which are the header's last layer.
    OWLv2's scale and shift per query are part of `features`. In Grounding DINO there is no last
    layer; `features` is the decoder's last hidden state.

    Args:
        weights: A folder as transformers saves it (`config.json`, `preprocessor_config.json` or
            `processor_config.json`, `model.safetensors` or its shards, and the tokenizer's files),
            or the name of a model on the hub (`owner/name`).
        classes: The ID classes.
        template: A sentence in which `{}` is replaced by a class, or several, whose embeddings are
            averaged (not in Grounding DINO). None is "a photo of a {}" for OWLv2 and "{}" for the
            others.
        unknown: Negative prompts, which mean an unknown object ("object"), or a text file of them,
            one per line.
        score_threshold: Detections below this score are discarded. Keep it low: the operating
            threshold is applied later.
        max_detections: Largest number of detections per image; the best are kept.
        nms_iou: Of two detections of one class that overlap by more than this IoU, the better one
            is kept. None is transformers' value: 0.5 in OmDet-Turbo, and 1, which keeps all, in the
            others.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("config.json",)

    #: The content of the prompts is part of `identity`, not their place.
    PLACES = (*HubDetector.PLACES, "classes", "template", "unknown")

    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    template: Templates | None = None
    unknown: Unknown = ()
    score_threshold: Fraction = 0.05
    max_detections: Count = 100
    nms_iou: Fraction | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """A folder of transformers with a network that takes prompts: the ID classes."""
        if str(read_config(path).get("model_type")) in CLASSES:
            return RecognisedFile({"classes": id_classes.categories})
        return None

    @cached_property
    def folder(self) -> OpenVocabularyFolder:
        """The folder of the network's files; no weights are read. Errors as in `read_folder`."""
        return read_folder(
            model_folder(self, (WHOLE_PROCESSOR, *TOKENIZER_FILES, *TOKENIZER_NOTES))
        )

    @cached_property
    def prompts(self) -> Prompts:
        """The prompts; errors as in `Prompts.of`."""
        return Prompts.of(self.classes, self.template or self._kind.template, self.unknown)

    @property
    def _kind(self) -> type[OpenVocabularyNetwork]:
        return NETWORKS[self.folder.model_type]

    def content(self) -> tuple[Path, ...]:
        """See `Detector.content`."""
        return self.folder.files

    @cached_property
    def identity(self) -> dict[str, Any]:
        """See `Detector.identity`; the content of a file of prompts counts, its place does not."""
        return {**super().identity, "prompts": self.prompts.identity()}

    @cached_property
    def network(self) -> OpenVocabularyNetwork:
        """See `Detector.network`.

        Raises:
            ParameterError: a prompt is too long for the text encoder, or the network cannot average
                templates.
        """
        prompts = self.prompts  # a wrong prompt is refused before the weights are read
        network = load_network(self.folder).to(self.torch_device())
        tokenizer = load_tokenizer(self.folder)
        with network_errors(self.weights):
            return self._kind(network, tokenizer, prompts)

    @cached_property
    def processor(self) -> BaseImageProcessor:
        """See `HubDetector.processor`."""
        try:
            return make_processor(self.folder.processor)
        except ParameterError as error:
            raise DataError(str(error), file=self.folder.path / PROCESSOR) from None

    @cached_property
    def _header(self) -> Header:
        weight = None
        bias = None
        if self.network.weight is not None:
            weight = self.network.weight.cpu().numpy()
            bias = np.zeros(len(weight), np.float32)
        return Header(
            classes=self.prompts.columns,
            unknown_columns=self.prompts.unknown_columns,
            activation="sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=weight,
            bias=bias,
        )

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        iou = self._kind.nms_iou if self.nms_iou is None else self.nms_iou
        selection = BoxSelection(
            self.score_threshold, iou, self.max_detections, self._kind.per_query
        )
        features_dtype = None
        if self.computed is None or "features" in self.computed:
            features_dtype = self.features_dtype
        network = self.load_network()
        with network_errors(self.weights), inference_mode():
            return detect_regions(
                network,
                self._header,
                prepared,
                image_ids,
                selection,
                self.precision,
                features_dtype,
            )


def read_folder(path: Path) -> OpenVocabularyFolder:
    """Reads the configuration in a folder and lists its files.

    Raises:
        DataError: it lacks a file, describes another kind of network, or names code.
    """
    is_whole = not is_file(path / PROCESSOR) and is_file(path / WHOLE_PROCESSOR)
    processor_file = path / (WHOLE_PROCESSOR if is_whole else PROCESSOR)
    needed = (
        f"a model needs {CONFIG}, {PROCESSOR} or {WHOLE_PROCESSOR}, safetensors, and {TOKENIZER} "
        "or a vocabulary"
    )
    required_files = [path / CONFIG, *weight_files(path), processor_file]
    required_files += [path / name for name in _tokenizer_files(path)]
    require_files(required_files, needed)
    tokenizer_paths = [path / name for name in (*TOKENIZER_FILES, *TOKENIZER_NOTES)]
    tokenizer_files = [file for file in tokenizer_paths if is_file(file)]

    config = read_description(path / CONFIG)
    processor = read_description(processor_file, MOST_PIXELS)
    if is_whole and isinstance(processor, dict):
        processor = processor.get("image_processor")
    contents = {path / CONFIG: config, processor_file: processor}
    if path / TOKENIZER_CONFIG in tokenizer_files:
        contents[path / TOKENIZER_CONFIG] = read_json(path / TOKENIZER_CONFIG)
    for file, content in contents.items():
        if not isinstance(content, dict):
            raise DataError(f"expected an object, found {shorten(content)}", file=file)
        if "auto_map" in content:
            raise DataError(
                "names code of the checkpoint, which is never run: use a model that transformers "
                "itself has",
                file=file,
                field="auto_map",
            )
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in CLASSES:
        problem = f"{shorten(model_type)} is none of {', '.join(CLASSES)}"
        raise DataError(problem, file=path / CONFIG, field="model_type")

    files = [*weight_files(path), path / CONFIG, processor_file, *tokenizer_files]
    return OpenVocabularyFolder(path, config, processor, tuple(files))


def _tokenizer_files(path: Path) -> tuple[str, ...]:
    """Names of the required files of a folder's tokenizer."""
    if is_file(path / TOKENIZER):
        return (TOKENIZER,)
    for names in VOCABULARIES:
        if is_file(path / names[0]):
            return names
    return (TOKENIZER,)


def load_tokenizer(folder: OpenVocabularyFolder) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, of the class that the network was trained with.

    Raises:
        DataError: a file is damaged.
    """
    tokenizer_class = getattr(transformers, CLASSES[folder.model_type][1])
    file = next(file for file in folder.files if file.name in TOKENIZER_FILES)
    try:
        with silenced_transformers():
            return tokenizer_class.from_pretrained(folder.path, local_files_only=True)
    except Exception as error:  # each tokenizer raises different errors
        raise DataError(
            f"transformers cannot read the tokenizer: {first_line(error)}", file=file
        ) from None


def load_network(folder: OpenVocabularyFolder) -> PreTrainedModel:
    """The network of a folder, in float32, in evaluation mode.

    Raises:
        DataError: transformers cannot build it, or the weights are absent, damaged or do not fit.
    """
    file = folder.path / CONFIG
    weights = weight_files(folder.path)
    network_class: Any = getattr(transformers, CLASSES[folder.model_type][0])
    with network_errors(file, "built"), silenced_transformers():
        config = AutoConfig.for_model(folder.model_type, **_local_config(folder))
    with silenced_transformers():
        built = refuse_larger(file, weights, lambda: network_class(config))
    return load_folder(built, config, folder.path)


def _local_config(folder: OpenVocabularyFolder) -> dict[str, Any]:
    """The fields of a configuration, with the backbone's configuration in place of its name.

    Older releases write the name, which is timm's; transformers would ask the hub for a model of
    that name.

    Raises:
        DataError: the backbone is not timm's.
    """
    fields = dict(folder.config)
    del fields["model_type"]
    backbone = fields.get("backbone")
    settings = fields.get("backbone_kwargs") or {}
    # transformers knows these settings itself.
    is_default = folder.model_type == "omdet-turbo" and not settings
    if backbone is None or fields.get("backbone_config") is not None or is_default:
        return fields

    if not fields.get("use_timm_backbone", True):
        raise DataError(
            f"names a model on the hub, {shorten(backbone)}: give its configuration as "
            "'backbone_config'",
            file=folder.path / CONFIG,
            field="backbone",
        )
    for name in ("backbone", "backbone_kwargs"):
        fields.pop(name, None)
    fields["backbone_config"] = {"model_type": "timm_backbone", "backbone": backbone, **settings}
    return fields
