"""Detection transformers: DETR (Carion et al. 2020), RT-DETR (Zhao et al. 2024), and others."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from transformers import PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.base import Fraction, LatentDetector, ReplayDetector, register
from farther.detectors.hub import CONFIG, HubDetector, architecture, make_processor, read_config
from farther.detectors.networks.detr import (
    DetrCheckpoint,
    class_head,
    find_checkpoint,
    keep_exact,
    load_network,
)
from farther.detectors.networks.detr_inference import replay, unit
from farther.detectors.networks.replay import GroupedReplay
from farther.detectors.networks.rfdetr_import import COCO_ROWS, read_rfdetr
from farther.detectors.recognition import COMPARED, IdClasses, RecognisedFile
from farther.detectors.settings import BoxSelection, PerQuery
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables import Header
from farther.tables.files import is_file

#: Types of transformers' networks that take prompts: those of the adapter `open_vocabulary`.
PROMPTED = ("owlv2", "grounding-dino", "mm-grounding-dino", "omdet-turbo")


@register("detr")
@dataclass(config=STRICT, kw_only=True)
class Detr(HubDetector, ReplayDetector, LatentDetector):
    """A detection transformer; its kind is the `model_type` of the checkpoint's configuration.

    Tested: RF-DETR, LW-DETR, DEIMv2, RT-DETR and RT-DETRv2, D-FINE, YOLOS, DETR and Table
    Transformer, Conditional, DAB and Deformable DETR, and PP-DocLayoutV3; others are refused by
    name. Boxes, scores and labels are those of the checkpoint's own image processor in transformers
    (`post_process_object_detection`), or those of `predict` of the package rfdetr. With a sigmoid
    (all but DETR, Table Transformer and YOLOS) a query is a detection for each class above the
    threshold: such rows differ in `score` and `label` and share `box`, `logits`,
    `features` and `latent`. `per_query: one` keeps the best class only.

    Logits are the query's own, from the last decoder layer; with a softmax the last column is "no
    object". `features` is the decoder's last hidden state of that query, the input of the linear
    class head that is the header's last layer; in YOLOS, whose head has three layers, the input of
    the last of these. D-FINE and DEIMv2 add to a query's logits one number for the quality of its
    box: they have `features`, but no last layer. `latent` pools the output of the first encoder
    module (RT-DETR's AIFI, at stride 32) over each detection's box and averages it per channel
    (FMIYC, Appendix F.2.4); in RF-DETR and LW-DETR, which have no encoder, that of the projector
    behind the backbone.

    Args:
        weights: A folder as transformers saves it, or the file of weights in it; a file that the
            package rfdetr wrote (`checkpoint_best_total.pth`); farther's own safetensors file;
            another PyTorch file (such as PyTorch Lightning's `.ckpt`), with `config`; or the name
            of a model on the hub (`owner/name`).
        nms_iou: Of two detections of one class that overlap by more than this IoU, the better one
            is kept. Detection transformers need no NMS: the default, 1, keeps all.
        per_query: "several" or "one", see above. None takes the protocol's: that of transformers,
            or "one" in the published code.
        config: Folder of `config.json` and `preprocessor_config.json`, for a PyTorch file in
            another folder.
        classes: Names for the classes, in the order of the logits, instead of the checkpoint's. For
            a file of rfdetr they may be fewer than the rows of its class head, of which the last
            one is not a class.
    """

    #: Endings of the names of networks of transformers that are read; the boxes of RF-DETR's
    #: segmentation networks are read without the masks.
    ARCHITECTURES: ClassVar[tuple[str, ...]] = (
        "ForObjectDetection",
        "RfDetrForInstanceSegmentation",
    )
    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("config.json", "*")
    PLACES = (*HubDetector.PLACES, "config")
    PROPOSALS: ClassVar[str | None] = "queries"

    nms_iou: Fraction = 1.0
    per_query: Literal["several", "one"] | None = None
    config: Path | None = None
    classes: tuple[str, ...] | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """A folder of transformers, a file of rfdetr, or farther's own file; see `Adapter`."""
        if is_file(path / CONFIG):
            takes_prompts = str(read_config(path).get("model_type")) in PROMPTED
            if takes_prompts or not architecture(path).endswith(cls.ARCHITECTURES):
                return None
            return RecognisedFile()
        return _recognise_rfdetr(path, id_classes) or cls.opened(path)

    @cached_property
    def checkpoint(self) -> DetrCheckpoint:
        """Blueprint and files of the checkpoint; errors as in `find_checkpoint`."""
        return find_checkpoint(
            self.weights,
            self.config,
            self.classes,
            revision=self.revision,
            local_files_only=self.local_files_only,
        )

    def content(self) -> tuple[Path, ...]:
        """See `Detector.content`."""
        return self.checkpoint.files

    @cached_property
    def network(self) -> PreTrainedModel:
        """See `Detector.network`."""
        network = self.to_device(load_network(self.checkpoint))
        keep_exact(network)
        return network

    @cached_property
    def processor(self) -> BaseImageProcessor:
        """See `HubDetector.processor`."""
        return make_processor(self.checkpoint.blueprint.processor)

    @cached_property
    def _header(self) -> Header:
        blueprint = self.checkpoint.blueprint
        classes, background_index = blueprint.columns()
        weight = None
        bias = None
        if blueprint.family.last_layer == "linear":
            last_layer = class_head(self.network)
            weight = last_layer.weight.detach().cpu().numpy()
            bias = last_layer.bias.detach().cpu().numpy()
        return Header(
            classes=classes,
            background_index=background_index,
            activation=blueprint.family.activation,
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=weight,
            bias=bias,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def detection(self, prepared: list) -> GroupedReplay:
        """See `ReplayDetector.detection`: rows are queries.

        Those of RT-DETR and its relatives are the same proposals when they are recomputed.
        """
        detections = replay(
            self.network,
            self._header,
            prepared,
            self.selection(),
            self.precision,
            self.stored_columns(),
        )
        detections.unit = unit(self.processor).to(self.torch_device())
        return detections

    def selection(self) -> BoxSelection:
        """Which boxes are detections."""
        default: PerQuery = "one"
        if self.protocol == "paper":
            default = self.checkpoint.blueprint.family.per_query
        return BoxSelection(
            self.score_threshold,
            self.nms_iou,
            self.max_detections,
            self.per_query or default,
            clipped=self.checkpoint.is_rfdetr,
        )

    @property
    def assumed(self) -> str:
        """See `Adapter.assumed`."""
        return self.checkpoint.assumed


def _recognise_rfdetr(path: Path, id_classes: IdClasses) -> RecognisedFile | None:
    """A checkpoint of the package rfdetr; None for other files.

    With the ID dataset's classes if the checkpoint names none.

    Raises:
        DataError: it names no classes, and has another number of them than the ID dataset.
    """
    if path.suffix.lower() == ".safetensors":
        return None
    try:
        file = read_rfdetr(path)
    except DataError:
        return None
    if file is None:
        return None

    if file.class_names is not None or file.rows == COCO_ROWS:
        return RecognisedFile()
    count = len(id_classes.categories)
    if file.rows not in (count, count + 1):
        problem = (
            f"it names no classes, and a class head of {file.rows} rows is not that of the "
            f"{count} of the ID dataset (one row per class, and one more)"
        )
        raise DataError(problem, file=path)
    return RecognisedFile({"classes": id_classes.categories}, assumed=COMPARED)
