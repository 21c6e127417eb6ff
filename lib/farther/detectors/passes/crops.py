"""The crops of regions through CLIP: text scores and feature scores for any run, imported detections included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Fraction
from farther.detectors.passes.base import SHARED, Pass, register_pass
from farther.detectors.prompts import Prompts, Templates, Unknown
from farther.errors import LISTED, DataError, ParameterError
from farther.images.clip import Encoder, EncoderParams
from farther.images.stream import Model
from farther.registry import STRICT
from farther.tables import Header, Images, Regions, RegionsFolder, Table
from farther.tables.files import digest
from farther.tables.parquet import read_parquet
from farther.tables.regions import LAYER

if TYPE_CHECKING:
    from farther.detectors.base import Detector

#: The shorter side of a crop is at least this share of the longer one: narrower ones would be
#: resized to huge images.
NARROWEST = 1 / 16


@plain_dataclass(frozen=True)
class Cut:
    """What CLIP sees of an image.

    Args:
        pixels: Prepared crops, ndarray of shape (n, height, width, 3), uint8; none of an image
            without regions.
        crop: The crop of each of the image's regions, ndarray of shape (regions,): indices of
            `pixels`.
    """

    pixels: np.ndarray | None
    crop: np.ndarray


@register_pass("crops")
@dataclass(config=STRICT, kw_only=True)
class Crops(Pass):
    """Each region's crop of the image through CLIP, beside the texts of the classes; needs no network of the detector.

    `features` are the embeddings of the crops at length 1. The last layer is the embeddings of the
    prompts times CLIP's logit scale, and `logits` are its output: scale · cos(crop, prompt). There
    is no background; the classes are the run's, then the negative prompts, whose columns mean
    unknown objects. Crops are resized as CLIP's configuration says: with `resize_mode: shortest`
    (OpenAI's models) the middle square of a crop is seen, so set `square`.

    Args:
        margin: Share of a box's width and height that is added on each side. Crops end at the
            image's border; a side is at least a pixel, and a sixteenth of the other.
        square: Widen the shorter side of the box to the longer one.
        template: Sentence for a class name, `{}` is its place; several are averaged. None takes the
            encoder's.
        unknown: Negative prompts, or a text file of them, one per line; `farther benchmark
            negatives` writes one.
        patches: Also embed the best patch of each crop, `latent.patch`, for the method `gl_mcm`.
        words: Words for a class in its prompts, where they are not its name.
        min_score: Detections below this score have the embedding of the whole image in place of
            their crop's: t* must not be lower. It saves time with detectors that store many weak
            detections.
        batch_size: Crops that CLIP sees at once.
        encoder: The CLIP; None takes `embed.encoder` of params.yaml.

    Raises:
        ParameterError: there is no encoder.
    """

    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    square: bool = False
    template: Templates | None = None
    unknown: Unknown = ()
    patches: bool = False
    words: dict[str, str] = Field(default_factory=dict)
    min_score: Fraction = 0.0
    batch_size: Count = 64
    encoder: EncoderParams | None = None

    @cached_property
    def clip(self) -> Encoder:
        """The loaded CLIP; errors as in `Encoder`."""
        if self.encoder is None:
            raise ParameterError(
                "pass 'crops': parameter 'encoder' is missing, and there is no section embed.encoder"
            )
        return Encoder(self.encoder)

    def identity(self) -> dict[str, Any]:
        """See `Pass.identity`: the content of CLIP's weights and of the prompts counts, not their place."""
        params = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("skip", "unknown", "encoder")
        }
        names = digest(self.unknown) if isinstance(self.unknown, Path) else digest(*self.unknown)
        clip = {
            name: value
            for name, value in self.clip.identity.items()
            if name not in ("model", "template")
        }
        return {
            "kind": self.name,
            **params,
            "template": self._templates,
            "unknown_digest": names,
            "clip": clip,
        }

    def header(self, detector: Detector) -> Header:
        """See `Pass.header`; that of the last detector is kept, as `forward` needs it for each batch."""
        kept = vars(self).get("_header")
        if kept is None or kept[0] is not detector:
            kept = vars(self)["_header"] = (detector, self.header_of(detector.header()))
        return kept[1]

    def header_of(self, run: Header) -> Header:
        """Header of the rows.

        Args:
            run: The header of the run's regions.

        Raises:
            ParameterError: a class has no words, or see `Prompts.of` and `Encoder`.
            DataError: a negative prompt is a class of the run, or the file of prompts is absent or
                damaged.
        """
        kept = [column for column in range(len(run.classes)) if column != run.background_index]
        classes = [run.classes[column] for column in kept]
        if wrong := sorted(set(self.words) - set(classes)):
            known = ", ".join(classes[:LISTED])
            raise ParameterError(
                f"pass 'crops': words: the run has no class {wrong[0]!r}. Its classes: {known}"
            )
        words = [self.words.get(name, name) for name in classes]
        if nameless := [
            name for name in words if not any(character.isalpha() for character in name)
        ]:
            problem = f"the class {nameless[0]!r} is not a word that CLIP knows"
            advice = f"name it in `classes` of the run, or in the pass as in `words: {{{nameless[0]!r}: person}}`"
            raise ParameterError(f"pass 'crops': {problem}: {advice}")
        prompts = Prompts.of(words, self._templates, self.unknown)
        text = self.clip.names(prompts.columns, prompts.templates)
        scale, bias = self.clip.scale_and_bias()
        unknown = [kept.index(column) for column in run.unknown_columns]
        return replace(
            run,
            classes=(*classes, *prompts.unknown),
            background_index=None,
            activation="softmax",
            unknown_columns=(*unknown, *prompts.unknown_columns),
            detector={**run.detector, "pass": self.identity()},
            weight=scale * text,
            bias=np.full(len(text), bias),
        )

    def cut(self, image: np.ndarray, box: np.ndarray, score: np.ndarray) -> Cut:
        """The crops of an image, prepared for CLIP.

        Args:
            image: ndarray of shape (H, W, 3), uint8, red green blue.
            box: Of its regions, ndarray of shape (N, 4).
            score: ndarray of shape (N,).
        """
        if not len(box):
            return Cut(None, np.zeros(0, np.int64))
        height, width = image.shape[:2]
        strong = score >= self.min_score
        places = self.bounds(box[strong], width, height).tolist()
        if not strong.all():
            places.append([0, 0, width, height])
        whole = Image.fromarray(image)
        pixels = np.stack([self.clip.preprocessing.pixels(whole.crop(place)) for place in places])
        return Cut(pixels, np.where(strong, np.cumsum(strong) - 1, len(places) - 1))

    def bounds(self, box: np.ndarray, width: int, height: int) -> np.ndarray:
        """Pixels of the crops of boxes, ndarray of shape (N, 4), int64: first column and row, and those after the last.

        Args:
            box: ndarray of shape (N, 4).
            width, height: Of the image.
        """
        low, high = box[:, :2].astype(np.float64), box[:, 2:].astype(np.float64)
        sides = np.maximum(high - low, 0) * (1 + 2 * self.margin)
        longer = sides.max(axis=1, keepdims=True, initial=0)
        sides = np.maximum(sides, longer * (1 if self.square else NARROWEST))
        middle, limits = (low + high) / 2, np.array([width, height])
        first = np.clip(np.floor(middle - sides / 2), 0, limits - 1)
        end = np.clip(np.ceil(middle + sides / 2), first + 1, limits)
        return np.concatenate([first, end], axis=1).astype(np.int64)

    def embeddings(self, cuts: Iterable[Cut], header: Header) -> dict[str, np.ndarray]:
        """The columns of embeddings of the regions of several images, ndarrays of shape (N, D), float32, length 1."""
        pixels, crops, before = [], [], 0
        for cut in cuts:
            if cut.pixels is not None:
                pixels.append(cut.pixels)
                crops.append(cut.crop + before)
                before += len(cut.pixels)
        if not pixels or header.weight is None:
            return {}
        known = np.delete(header.weight, header.unknown_columns, axis=0)
        text = known / np.linalg.norm(known, axis=1, keepdims=True) if self.patches else None
        features, patch = self.clip.pixels(np.concatenate(pixels), self.batch_size, text)
        rows = np.concatenate(crops)
        return {
            "features": features[rows],
            **({} if patch is None else {f"{LAYER}patch": patch[rows]}),
        }

    def regions(self, run: Regions, cuts: Iterable[Cut], header: Header) -> Regions:
        """The rows of some images: the run's, with the columns of the pass.

        Args:
            run: The run's rows, image by image.
            cuts: Of the images, in the same order.
            header: See `header_of`.

        Raises:
            DataError: the network gives numbers that are not finite.
        """
        columns = self.embeddings(cuts, header)
        for name, values in columns.items():
            if not np.isfinite(values).all():
                raise DataError("the encoder gives numbers that are not finite", field=name)
        background = len(run.classes) if run.background_index is None else run.background_index
        if not len(run) or header.weight is None or not columns:
            return Regions.empty(header)
        shared = {name: run.array(name) for name in ("image_id", "region_id", "box", "score")}
        label = run.label - (run.label > background)
        logits = columns["features"] @ header.weight.T + header.bias
        return Regions(header=header, **shared, label=label, logits=logits, **columns)

    def prepare(self, detector: Detector, image: np.ndarray) -> tuple[Any, np.ndarray]:
        """See `Pass.prepare`: what the detector prepares, and the image, which is cut once its objects are known."""
        return detector.prepare(image), image

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`: for detections that are not stored. Stored ones need no detector, see `CropModel`."""
        found = detector.forward([item for item, _ in prepared], image_ids)
        cuts = []
        for image_id, (_, image) in zip(image_ids, prepared, strict=True):
            rows = found.image_id == image_id
            cuts.append(self.cut(image, found.box[rows], found.score[rows]))
        return self.regions(found, cuts, self.header(detector))

    @property
    def _templates(self) -> tuple[str, ...]:
        template = self.template or self.clip.params.template
        return (template,) if isinstance(template, str) else template


@plain_dataclass(frozen=True)
class CropModel(Model):
    """The crops of stored regions as a model of the engine.

    Args:
        again: The pass.
        header: Of the rows.
        regions: The run's own regions in the split.
        images: The images of the split.
        shard_images: Images per shard of both.
    """

    again: Crops
    header: Header
    regions: RegionsFolder
    images: Images
    shard_images: int

    @property
    def device(self) -> str:  # type: ignore[override]
        """See `Model`."""
        return self.again.clip.params.device

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The module of the pass."""
        return (Crops.__module__,)

    def identity(self) -> dict[str, Any]:
        """See `Model.identity`."""
        return {
            "header": self.header.to_json(),
            "last_layer": self.header.layer_digest(),
            "regions": self.regions.rows_digest(),
        }

    def load(self) -> Any:
        """See `Model.load`: CLIP and the run's regions, which must be read before worker processes are forked."""
        self._stored, self._slices  # noqa: B018
        return self.again.clip.network

    def runs_on_cpu(self) -> bool:
        """See `Model.runs_on_cpu`."""
        return self.again.clip.device.type == "cpu"

    @cached_property
    def _stored(self) -> Regions:
        """The columns that the pass shares with the run's regions."""
        names = ["image_id", "region_id", *SHARED]
        header, shards = self.regions.header, self.regions.shards
        parts = [
            Regions.from_frame(read_parquet(shard, columns=names), shard, header)
            for shard in shards
        ]
        return Regions.concatenate(parts) if parts else Regions.empty(header)

    @cached_property
    def _slices(self) -> dict[str, slice]:
        """The rows of each image with regions."""
        counts = pl.Series(self._stored.image_id, dtype=pl.String).rle().struct
        ends = counts.field("len").cum_sum().to_list()
        return {
            name: slice(*of)
            for name, of in zip(counts.field("value"), pairwise([0, *ends]), strict=True)
        }

    def prepare(self, image: np.ndarray, image_id: str) -> tuple[Regions, Cut]:
        """See `Model.prepare`: the image's regions, and their crops."""
        found = self._stored[self._slices.get(image_id, slice(0, 0))]
        return found, self.again.cut(image, found.box, found.score)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Model.forward`."""
        found = Regions.concatenate([regions for regions, _ in prepared])
        return self.again.regions(found, [cut for _, cut in prepared], self.header)

    def empty(self) -> Regions:
        """See `Model.empty`."""
        return Regions.empty(self.header)

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """The rows of a shard, if none of its images is without those that the run has.

        Raises:
            DataError: an image with detections cannot be read.
        """
        stored = set(
            self.images.image_id[rows[0] // self.shard_images * self.shard_images :][
                : self.shard_images
            ]
        )
        if absent := (stored & self._slices.keys()) - set(table.frame["image_id"]):
            raise DataError(
                f"the image {min(absent)!r} has detections, but cannot be read",
                file=self.regions.path,
            )
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
