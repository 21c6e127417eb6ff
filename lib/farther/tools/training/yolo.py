"""Training YOLOv8 and its relatives with Ultralytics' own trainer: seeded, and resumed where a killed run stopped."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from farther.detectors.networks.detection import autocast
from farther.detectors.networks.yolo import (
    Suppression,
    YoloBlueprint,
    build_network,
    detect_regions,
    letterbox,
    padding_stride,
)
from farther.metrics import closed_set
from farther.tables import Header, Regions
from farther.tables.files import digest, write_aside
from farther.tools.training.run import TrainingError, write_log
from farther.tools.training.samples import Samples
from farther.tools.training.yolo_recipe import YoloRecipe

from ultralytics.data.dataset import YOLODataset  # isort: skip: farther's import of it has no side effects
from ultralytics.models.yolo.detect import DetectionTrainer  # isort: skip
from ultralytics.nn.tasks import DetectionModel  # isort: skip
from ultralytics.utils import LOGGER  # isort: skip


class TableDataset(YOLODataset):
    """Images and boxes of `Samples`, where Ultralytics would look for image folders, label files and caches of both."""

    def __init__(self, samples: Samples, **params: Any):
        self.samples = samples
        super().__init__(img_path="", **params)
        # Images lately read, by row: what mosaics draw from, unless all are kept in memory.
        self.buffer: dict[int, tuple[np.ndarray, tuple[int, int]]] = {}

    def get_img_files(self, img_path: str) -> list[str]:
        """The images' names; `load_image` reads them."""
        return list(self.samples.images.file)

    def check_cache_ram(self, safety_margin: float = 1.0) -> bool:
        """No: samples keep decoded images themselves."""
        return False

    def get_labels(self) -> list[dict[str, Any]]:
        """Each image's boxes, as Ultralytics writes them: centre and size, as fractions of the image's."""
        labels = []
        images = self.samples.images
        for row, file in enumerate(self.im_files):
            size = np.array([images.width[row], images.height[row]], dtype=np.float32)
            corners = self.samples.boxes[row].reshape(-1, 2, 2) / size
            boxes = np.concatenate([corners.mean(axis=1), corners[:, 1] - corners[:, 0]], axis=1)
            labels.append(
                {
                    "im_file": file,
                    "shape": (int(size[1]), int(size[0])),
                    "cls": self.samples.labels[row].astype(np.float32)[:, None],
                    "bboxes": boxes.astype(np.float32),
                    "segments": [],
                    "keypoints": None,
                    "normalized": True,
                    "bbox_format": "xywh",
                }
            )
        return labels

    def load_image(
        self,
        i: int,
        rect_mode: bool = True,  # noqa: FBT001 (Ultralytics' signature)
        resize_short: bool = False,  # noqa: FBT001
    ) -> tuple[np.ndarray, tuple[int, int], tuple[int, int]]:
        """An image, its longer side scaled to the network's size.

        Returns:
            ndarray of shape (h, w, 3), uint8, blue green red; height and width before; (h, w).

        Raises:
            DataError: the file is absent, damaged, or another than was ingested.
        """
        known = self.buffer.get(i) if self.augment else None
        if known is None:
            pixels = self.samples.pixels(i)
            known = np.ascontiguousarray(_scaled(pixels, self.imgsz)[..., ::-1]), pixels.shape[:2]
            if self.augment and self.cache != "ram":
                self.buffer[i] = known
                if len(self.buffer) > self.max_buffer_length:
                    del self.buffer[next(iter(self.buffer))]
        image, original = known
        return image, original, image.shape[:2]


def _scaled(pixels: np.ndarray, longer_side: int) -> np.ndarray:
    """As Ultralytics scales what it reads to train on."""
    height, width = pixels.shape[:2]
    ratio = longer_side / max(height, width)
    if ratio == 1:
        return pixels
    size = min(math.ceil(width * ratio), longer_side), min(math.ceil(height * ratio), longer_side)
    return cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)


class MixedPrecisionModel(DetectionModel):
    """A network that computes in `precision` while it learns, and its losses in float32.

    Ultralytics' own mixed precision needs a GPU and first fetches a network to try it out.
    """

    precision: str = "float32"

    def loss(self, batch: dict[str, Any], preds: Any = None) -> tuple[Tensor, dict[str, Tensor]]:
        """See Ultralytics."""
        if preds is None:
            pixels = batch["img"].contiguous(memory_format=torch.channels_last)
            with autocast(pixels.device, self.precision):
                preds = self.forward(pixels)
        return super().loss(batch, _to_float(preds))


def _to_float(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_float(part) for name, part in value.items()}
    return [part.float() for part in value] if isinstance(value, list) else value.float()


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training run.

    Args:
        blueprint: The network.
        training: What it learns from.
        validation: What its mAP is watched on; no decision depends on it.
        recipe: How it is trained.
        work: Folder for the state of the unfinished run.
        log_file: CSV to write: epoch, step, learning rate, mean losses, mAP50 on the validation images.
        device: Where to train.
        initial_weights: To start from, by the network's names; those that do not fit are left random. None starts from
            nothing.
    """

    blueprint: YoloBlueprint
    training: Samples
    validation: Samples
    recipe: YoloRecipe
    work: Path
    log_file: Path
    device: torch.device
    initial_weights: Mapping[str, Tensor] | None = None

    @property
    def state_file(self) -> Path:
        """Where the state of the unfinished run is kept."""
        return self.work / "state.pt"

    def identity(self) -> str:
        """Names all that the outcome depends on; a state of another identity is not continued."""
        described = [dataclasses.asdict(self.recipe), dataclasses.asdict(self.blueprint)]
        start = [
            part for name, t in (self.initial_weights or {}).items() for part in (name, t.float().numpy().tobytes())
        ]
        return digest(json.dumps(described), self.training.digest(), *start)

    def network(self) -> MixedPrecisionModel:
        """The network to train."""
        torch.manual_seed(self.recipe.seed)
        network = build_network(self.blueprint, MixedPrecisionModel)
        network.precision = self.recipe.precision
        own = network.state_dict()
        given = self.initial_weights or {}
        network.load_state_dict({n: t for n, t in given.items() if n in own and t.shape == own[n].shape}, strict=False)
        return network.to(memory_format=torch.channels_last)

    def read_state(self) -> dict[str, Any] | None:
        """The state that an earlier run of the same identity left, if one did."""
        if not self.state_file.exists():
            return None
        state = torch.load(self.state_file, map_location="cpu", weights_only=True)
        return state if state["identity"] == self.identity() else None


class Run(DetectionTrainer):
    """Ultralytics' trainer on farther's tables.

    Its data come from tables, its state is kept without pickles and written aside, each epoch has a seed of its own, so
    that a run that was killed ends as one that was not, and validation is farther's own.

    Its name lacks the word "Trainer" because Ultralytics attaches reporting to classes that have it.
    """

    def __init__(self, plan: Plan, state: Mapping[str, Any] | None):
        self.plan, self.state = plan, state
        self.log: list[dict[str, float]] = []
        device = plan.device
        fixed = {
            "model": "yolov8n.yaml",  # only a name that Ultralytics accepts: `setup_model` decides
            "imgsz": plan.blueprint.image_size,
            "device": device.type if device.type in ("cpu", "mps") else str(device.index or 0),
            "save_dir": str(plan.work / "ultralytics"),
            "amp": False,  # see `MixedPrecisionModel`
            "plots": False,
            "verbose": False,
        }
        super().__init__(overrides={**plan.recipe.to_ultralytics(), **fixed})
        self.add_callback("on_train_start", Run.show_progress)
        self.add_callback("on_train_epoch_start", Run.begin_epoch)
        self.add_callback("on_train_batch_end", Run.end_batch)
        self.add_callback("teardown", Run.end_progress)

    def get_dataset(self) -> dict[str, Any]:
        """Classes and images, under the names that Ultralytics uses."""
        names = dict(enumerate(self.plan.blueprint.classes))
        samples = {"train": self.plan.training, "val": self.plan.validation}
        return {**samples, "names": names, "nc": len(names), "channels": 3}

    def build_dataset(self, img_path: Samples, mode: str = "train", batch: int | None = None) -> TableDataset:
        """The samples as a dataset; `img_path` is what `get_dataset` gave."""
        return TableDataset(
            img_path,
            data=self.data,
            task="detect",
            imgsz=self.args.imgsz,
            batch_size=batch,
            augment=mode == "train",
            hyp=self.args,
            cache=self.args.cache,
            stride=self.stride,
        )

    def setup_model(self) -> None:
        """Builds the network."""
        self.model = self.plan.network()

    def resume_training(self, ckpt: None) -> None:
        """Goes on where an earlier run stopped, if one did."""
        if self.state is None:
            return
        self.model.load_state_dict(self.state["network"])
        self.ema.ema.load_state_dict(self.state["averaged"])
        self.ema.updates = self.state["updates"]
        self.optimizer.load_state_dict(self.state["optimizer"])
        self.log, self.start_epoch = self.state["log"], self.state["epoch"]
        self.model.criterion = self.model.init_criterion()
        if hasattr(self.model.criterion, "updates"):  # heads of two branches weigh them by the number of epochs
            self.model.criterion.updates = self.start_epoch - 1
            self.model.criterion.update()

    def show_progress(self) -> None:
        """Starts the progress bar."""
        size = len(self.plan.training)
        self.bar = tqdm(total=self.epochs * size, initial=self.start_epoch * size, unit="image", smoothing=0.05)

    def begin_epoch(self) -> None:
        """Seeds all that is random in an epoch by the seed and the epoch's number alone."""
        seed = int(digest(f"{self.plan.recipe.seed} {self.epoch}")[:8], 16)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (Ultralytics' augmentation draws from this generator)
        torch.manual_seed(seed)
        self.train_loader.generator.manual_seed(seed)
        self.train_loader.dataset.buffer.clear()
        self.train_loader.reset()

    def end_batch(self) -> None:
        """Shows progress.

        Raises:
            TrainingError: the loss is not finite.
        """
        losses = {name: f"{value.item():.3f}" for name, value in self.tloss.items()}
        if not torch.isfinite(self.loss):
            raise TrainingError(f"epoch {self.epoch + 1}: the loss is not finite: {losses}. Lower learning_rate")
        # The last batch of an epoch may be smaller.
        self.bar.update(min(self.batch_size, (self.epoch + 1) * len(self.plan.training) - self.bar.n))
        self.bar.set_postfix({"epoch": self.epoch + 1, **losses}, refresh=False)

    def end_progress(self) -> None:
        """Closes the progress bar, whatever ended the run."""
        if hasattr(self, "bar"):
            self.bar.close()

    def validate(self) -> tuple[dict[str, float], None]:
        """mAP50 on the validation images, in the epochs that have it. No fitness: no epoch is preferred to the last."""
        number = self.epoch + 1
        if number % self.plan.recipe.evaluate_epochs and number != self.epochs:
            return {}, None
        found = evaluate(self.ema.ema, self.plan.blueprint, self.plan.validation)
        return {"val_map50": found["ap50"]}, None

    def save_metrics(self, metrics: dict[str, float]) -> None:
        """Adds a row to the log. A step is one batch, whether or not the optimizer steps after it."""
        losses = {name: value.item() for name, value in self.tloss.items()}
        row = {"epoch": self.epoch + 1, "step": (self.epoch + 1) * len(self.train_loader)}
        row |= {"learning_rate": metrics["lr/pg0"], "loss": sum(losses.values()), **losses}
        self.log.append(row | {name: value for name, value in metrics.items() if name == "val_map50"})
        write_log(self.plan.log_file, self.log)

    def save_model(self) -> bool:
        """Writes the state aside and renames it: a kill leaves the last whole one."""
        state = {
            "identity": self.plan.identity(),
            "epoch": self.epoch + 1,
            "log": self.log,
            "network": self.model.state_dict(),
            "averaged": self.ema.ema.state_dict(),
            "updates": self.ema.updates,
            "optimizer": self.optimizer.state_dict(),
        }
        with write_aside(self.plan.state_file) as aside:
            torch.save(state, aside)
        return True

    def final_eval(self) -> None:
        """Nothing: the last epoch was evaluated, and the caller decides what becomes of the network."""


def train(plan: Plan) -> DetectionModel:
    """Trains a network, or goes on with a run that was killed; see `Run`.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image is absent, damaged, or another than was ingested.
        ParameterError: the architecture cannot be built.
    """
    if plan.recipe.cache_images:
        plan.training.cache()
        plan.validation.cache()
    state = plan.read_state()
    if state is None or state["epoch"] < plan.recipe.epochs:
        with _only_warnings():
            run = Run(plan, state)
            run.train()
        return run.ema.ema.eval()
    network = plan.network()
    network.load_state_dict(state["averaged"])
    write_log(plan.log_file, state["log"])
    return network.eval()


@contextmanager
def _only_warnings() -> Iterator[None]:
    """Ultralytics' messages and progress bars stay away for a block; the run shows its own."""
    before = LOGGER.level
    LOGGER.setLevel(logging.WARNING)
    try:
        yield
    finally:
        LOGGER.setLevel(before)


def evaluate(
    network: DetectionModel, blueprint: YoloBlueprint, samples: Samples, batch_size: int = 16
) -> dict[str, Any]:
    """Closed-set figures (COCO's mAP) of a network on a subset's images; see `farther.metrics.closed_set.evaluate`.

    Args:
        network: In evaluation mode.
    """
    header = Header(classes=blueprint.classes, activation="sigmoid")
    suppression = Suppression(score_threshold=0.001, iou=0.7, max_detections=100)
    stride = padding_stride(network.stride)
    found = []
    for start in range(0, len(samples), batch_size):
        rows = range(start, min(start + batch_size, len(samples)))
        images = [letterbox(samples.pixels(row), blueprint.image_size, stride) for row in rows]
        names = [samples.images.image_id[row] for row in rows]
        found.append(detect_regions(network, header, images, names, suppression))
    return closed_set.evaluate(samples.objects, Regions.concatenate(found), blueprint.classes)
