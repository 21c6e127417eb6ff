"""Crops of regions through CLIP: text and feature scores for any run, also imported detections."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Fraction
from farther.detectors.passes.base import KEYS, SHARED, Pass, register_pass
from farther.detectors.prompts import Prompts, Templates, Unknown
from farther.errors import LISTED, DataError, ParameterError
from farther.images.clip import Encoder, EncoderParams
from farther.images.model import Model
from farther.images.read import without_pillow_limit
from farther.naming.registry import STRICT
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
    """The crops of an image.

    Args:
        pixels: Crops prepared for CLIP, ndarray of shape (n, height, width, 3), uint8; None for an
            image without regions.
        crop: The crop of each of the image's regions, ndarray of shape (regions,): indices of
            `pixels`.
    """

    pixels: np.ndarray | None
    crop: np.ndarray


@register_pass("crops")
@dataclass(config=STRICT, kw_only=True)
class Crops(Pass):
    """Embeddings of each region's crop by CLIP, compared with the texts of the classes.

    The detector's network is not needed. `features` are the embeddings of the crops at length 1.
    The last layer is the embeddings of the prompts times CLIP's logit scale, and `logits` are its
    output: scale · cos(crop, prompt). There is no background; the classes are the run's, then the
    negative prompts, whose columns mean unknown objects. Crops are resized according to CLIP's
    configuration: with `resize_mode: shortest` (OpenAI's models) only the central square of a crop
    is used, so set `square`.

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
        min_score: Detections below this score have the embedding of the image in place of their
            crop's: t* must not be lower. It saves time with detectors that store many weak
            detections.
        batch_size: Crops in one batch of CLIP.
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

    def __post_init__(self) -> None:
        #: The header of `header`, and the detector that it is for.
        self._header: tuple[Detector, Header] | None = None

    @cached_property
    def clip(self) -> Encoder:
        """The loaded CLIP; errors as in `Encoder`."""
        if self.encoder is None:
            raise ParameterError(
                "pass 'crops': parameter 'encoder' is missing, and there is no section "
                "embed.encoder"
            )
        return Encoder(self.encoder)

    def identity(self) -> dict[str, Any]:
        """See `Pass.identity`: of CLIP's weights and of the prompts, only the content counts."""
        params = asdict(self)
        for name in ("skip", "unknown", "encoder"):
            del params[name]
        clip = dict(self.clip.identity)
        for name in ("model", "template"):
            clip.pop(name, None)
        if isinstance(self.unknown, Path):
            unknown_digest = digest(self.unknown)
        else:
            unknown_digest = digest(*self.unknown)
        return {
            "kind": self.name,
            **params,
            "template": self._templates,
            "unknown_digest": unknown_digest,
            "clip": clip,
        }

    def header(self, detector: Detector) -> Header:
        """See `Pass.header`; the last detector's is kept, as `forward` needs it for each batch."""
        if self._header is None or self._header[0] is not detector:
            self._header = (detector, self.header_of(detector.header()))
        return self._header[1]

    def header_of(self, run: Header) -> Header:
        """Header of the rows.

        Args:
            run: The header of the run's regions.

        Raises:
            ParameterError: a class has no words, or see `Prompts.of` and `Encoder`.
            DataError: a negative prompt is a class of the run, or the file of prompts is absent or
                damaged.
        """
        # All columns but the background's.
        columns = list(range(len(run.classes)))
        if run.background_index is not None:
            columns.remove(run.background_index)
        classes = [run.classes[column] for column in columns]
        wrong_names = sorted(set(self.words) - set(classes))
        if wrong_names:
            known = ", ".join(classes[:LISTED])
            raise ParameterError(
                f"pass 'crops': words: the run has no class {wrong_names[0]!r}. "
                f"Its classes: {known}"
            )
        words = [self.words.get(name, name) for name in classes]
        for word in words:
            if not any(character.isalpha() for character in word):
                raise ParameterError(
                    f"pass 'crops': the class {word!r} is not a word that CLIP knows: name it in "
                    f"`classes` of the run, or in the pass as in `words: {{{word!r}: person}}`"
                )

        prompts = Prompts.of(words, self._templates, self.unknown)
        text = self.clip.names(prompts.columns, prompts.templates)
        scale, bias = self.clip.scale_and_bias()
        unknown_columns = [columns.index(column) for column in run.unknown_columns]
        return replace(
            run,
            classes=(*classes, *prompts.unknown),
            background_index=None,
            activation="softmax",
            unknown_columns=(*unknown_columns, *prompts.unknown_columns),
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
        is_strong = score >= self.min_score
        bounds = self.bounds(box[is_strong], width, height).tolist()
        if not is_strong.all():
            bounds.append([0, 0, width, height])
        picture = Image.fromarray(image)
        with without_pillow_limit():
            pixels = [self.clip.preprocessing.pixels(picture.crop(bound)) for bound in bounds]
        # Weak detections have the last crop, the image.
        crop = np.where(is_strong, np.cumsum(is_strong) - 1, len(bounds) - 1)
        return Cut(np.stack(pixels), crop)

    def bounds(self, box: np.ndarray, width: int, height: int) -> np.ndarray:
        """Pixel bounds of the crops of boxes, ndarray of shape (N, 4), int64.

        Args:
            box: ndarray of shape (N, 4).
            width, height: Of the image.

        Returns:
            First column and row of each crop, and those after its last ones.
        """
        low = box[:, :2].astype(np.float64)
        high = box[:, 2:].astype(np.float64)
        sides = np.maximum(high - low, 0) * (1 + 2 * self.margin)
        longer_side = sides.max(axis=1, keepdims=True, initial=0)
        smallest_share = 1 if self.square else NARROWEST
        sides = np.maximum(sides, longer_side * smallest_share)
        middle = (low + high) / 2
        limits = np.array([width, height])
        first = np.clip(np.floor(middle - sides / 2), 0, limits - 1)
        end = np.clip(np.ceil(middle + sides / 2), first + 1, limits)
        return np.concatenate([first, end], axis=1).astype(np.int64)

    def embeddings(self, cuts: Iterable[Cut], header: Header) -> dict[str, np.ndarray]:
        """The columns of embeddings of the regions of several images.

        Returns:
            ndarrays of shape (N, D), float32, length 1, by the column's name.
        """
        pixels = []
        crops = []
        crop_count = 0
        for cut in cuts:
            if cut.pixels is not None:
                pixels.append(cut.pixels)
                crops.append(cut.crop + crop_count)
                crop_count += len(cut.pixels)
        if not pixels or header.weight is None:
            return {}

        text = None
        if self.patches:
            known = np.delete(header.weight, header.unknown_columns, axis=0)
            text = known / np.linalg.norm(known, axis=1, keepdims=True)
        features, patch = self.clip.pixels(np.concatenate(pixels), self.batch_size, text)
        rows = np.concatenate(crops)
        columns = {"features": features[rows]}
        if patch is not None:
            columns[f"{LAYER}patch"] = patch[rows]
        return columns

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
        """See `Pass.prepare`: the detector's input, and the image, which is cropped later."""
        return detector.prepare(image), image

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`; stored detections need no detector, see `CropModel`."""
        regions = detector.forward([detector_input for detector_input, _ in prepared], image_ids)
        cuts = []
        for image_id, (_, image) in zip(image_ids, prepared, strict=True):
            rows = regions.image_id == image_id
            cuts.append(self.cut(image, regions.box[rows], regions.score[rows]))
        return self.regions(regions, cuts, self.header(detector))

    @property
    def _templates(self) -> tuple[str, ...]:
        """The sentences for a class name."""
        templates = self.template or self.clip.params.template
        if isinstance(templates, str):
            return (templates,)
        return templates


@plain_dataclass(frozen=True)
class StoredRegions:
    """The columns of a run's regions that a pass shares.

    Args:
        regions: The rows, image by image.
        rows_of_image: The rows of each image with regions.
    """

    regions: Regions
    rows_of_image: dict[str, slice]

    @classmethod
    def read(cls, folder: RegionsFolder) -> StoredRegions:
        """Reads the regions of a split."""
        shards = []
        for shard in folder.shards:
            frame = read_parquet(shard, columns=[*KEYS, *SHARED])
            shards.append(Regions.from_frame(frame, shard, folder.header))
        regions = Regions.concatenate(shards) if shards else Regions.empty(folder.header)

        runs = pl.Series(regions.image_id, dtype=pl.String).rle().struct
        ends = runs.field("len").cum_sum().to_list()
        rows_of_image = {}
        start = 0
        for image_id, end in zip(runs.field("value"), ends, strict=True):
            rows_of_image[image_id] = slice(start, end)
            start = end
        return cls(regions, rows_of_image)

    def in_image(self, image_id: str) -> Regions:
        """The regions in an image."""
        return self.regions[self.rows_of_image.get(image_id, slice(0, 0))]


@plain_dataclass(frozen=True)
class CropModel(Model):
    """The crops of stored regions as a model of the engine that streams images.

    Args:
        crops: The pass.
        header: Header of the rows.
        regions: The run's own regions in the split.
        images: The images of the split.
        shard_images: Images per shard of both.
    """

    crops: Crops
    header: Header
    regions: RegionsFolder
    images: Images
    shard_images: int

    @property
    def device(self) -> str:  # type: ignore[override]
        """See `Model`."""
        return self.crops.clip.params.device

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
        """See `Model.load`: CLIP, and the run's regions for worker processes to share."""
        self.load_regions()
        return self.crops.clip.network

    def load_regions(self) -> StoredRegions:
        """Reads the run's regions, unless they are read, and returns them."""
        return self._stored

    def runs_on_cpu(self) -> bool:
        """See `Model.runs_on_cpu`."""
        return self.crops.clip.device.type == "cpu"

    @cached_property
    def _stored(self) -> StoredRegions:
        return StoredRegions.read(self.regions)

    def prepare(self, image: np.ndarray, image_id: str) -> tuple[Regions, Cut]:
        """See `Model.prepare`: the image's regions, and their crops."""
        regions = self._stored.in_image(image_id)
        return regions, self.crops.cut(image, regions.box, regions.score)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Model.forward`."""
        regions = Regions.concatenate([regions for regions, _ in prepared])
        return self.crops.regions(regions, [cut for _, cut in prepared], self.header)

    def empty(self) -> Regions:
        """See `Model.empty`."""
        return Regions.empty(self.header)

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """The rows of a shard, if it has rows for each image with stored regions.

        Raises:
            DataError: an image with detections cannot be read.
        """
        first = int(rows[0]) // self.shard_images * self.shard_images
        shard_image_ids = set(self.images.image_id[first : first + self.shard_images])
        absent = shard_image_ids & self._stored.rows_of_image.keys()
        absent -= set(table.frame["image_id"])
        if absent:
            raise DataError(
                f"the image {min(absent)!r} has detections, but cannot be read",
                file=self.regions.path,
            )
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
