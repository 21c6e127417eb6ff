"""The trainer of YOLOv8 and its relatives: Ultralytics' trainer, seeded and resumable."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import cv2
import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from tqdm import tqdm

from farther.detectors.networks.detection import autocast
from farther.detectors.networks.yolo import (
    YoloBlueprint,
    build_network,
    letterbox,
    load_network,
    padding_stride,
    read_checkpoint,
    save_checkpoint,
)
from farther.detectors.settings import BoxSelection
from farther.detectors.yolo import replay
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther_training.ranges import Count
from farther_training.recipe import YoloRecipe
from farther_training.run import TrainingError, evaluate_on, read_state, write_log, write_state
from farther_training.samples import Samples
from farther_training.trainers import (
    Job,
    Task,
    Trained,
    count_parameters,
    digest_of_weights,
    register,
)

from ultralytics.data.dataset import YOLODataset  # isort: skip: farther's import of it has no side effects
from ultralytics.models.yolo.detect import DetectionTrainer  # isort: skip
from ultralytics.nn.tasks import DetectionModel  # isort: skip
from ultralytics.utils import LOGGER  # isort: skip


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class YoloJob(Job):
    """Trains a detection network of Ultralytics.

    Args:
        architecture: Name of an architecture of Ultralytics.
        changes: Keys of its description to replace, such as `reg_max`, or `scales`: factors of
            depth and width, and the largest number of channels, by the last letter of the name.
        image_size: Longer side of scaled images in pixels. FMIYC used 512 for VOC and 736 for
            BDD100k.
        initial_weights: Checkpoint to start from, in farther's or Ultralytics' format; layers that
            do not fit start from scratch.
        recipe: Hyperparameters.
    """

    architecture: str = "yolov8n"
    changes: dict[str, Any] = Field(default_factory=dict)
    image_size: Count = 512
    recipe: Annotated[YoloRecipe, Field(default_factory=YoloRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        blueprint = YoloBlueprint.shipped(
            self.architecture, task.training.classes, self.image_size, self.changes
        )
        initial = None
        if self.initial_weights is not None:
            initial = read_checkpoint(self.initial_weights).weights
        network = train(Plan(blueprint, task, self.recipe, initial))
        save_checkpoint(self.weights, network, blueprint, task.notes)
        checkpoint = read_checkpoint(self.weights)
        saved_network = load_network(self.weights, checkpoint).to(task.device)

        facts: dict[str, Any] = {"architecture": self.architecture}
        if self.changes:
            facts["changes"] = self.changes
        facts["classes"] = list(task.training.classes)
        facts["image_size"] = self.image_size
        return Trained(
            evaluate=lambda samples: evaluate(saved_network, blueprint, samples),
            parameters=count_parameters(network),
            origin=digest_of_weights(self.initial_weights),
            kind=f"YOLO, architecture `{self.architecture}` of Ultralytics",
            scaling=f"Images are scaled to {self.image_size} pixels on the longer side.",
            facts=facts,
            packages=("ultralytics",),
        )


class TableDataset(YOLODataset):
    """Images and boxes of `Samples` in the place of Ultralytics' image folders and label files."""

    def __init__(self, samples: Samples, **params: Any):
        self.samples = samples
        super().__init__(img_path="", **params)
        # Recently read images by row: mosaics draw from them, unless all images are in memory.
        self.buffer: dict[int, tuple[np.ndarray, tuple[int, int]]] = {}

    def get_img_files(self, img_path: str) -> list[str]:
        """File names; `load_image` reads the images."""
        return list(self.samples.images.file)

    def check_cache_ram(self, safety_margin: float = 1.0) -> bool:
        """False: samples cache decoded images themselves."""
        return False

    def get_labels(self) -> list[dict[str, Any]]:
        """Boxes of each image in Ultralytics' format.

        A box is its centre and size, as fractions of the image's size.
        """
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
        """An image with its longer side scaled to the network's size.

        Returns:
            ndarray of shape (h, w, 3), uint8, blue green red; original height and width; (h, w).
        """
        if self.augment and i in self.buffer:
            image, original_shape = self.buffer[i]
            return image, original_shape, image.shape[:2]
        pixels = self.samples.pixels(i)
        original_shape = pixels.shape[:2]
        image = np.ascontiguousarray(_scaled(pixels, self.imgsz)[..., ::-1])
        if self.augment and self.cache != "ram":
            self.buffer[i] = (image, original_shape)
            if len(self.buffer) > self.max_buffer_length:
                oldest = next(iter(self.buffer))
                del self.buffer[oldest]
        return image, original_shape, image.shape[:2]


def _scaled(pixels: np.ndarray, longer_side: int) -> np.ndarray:
    """Scales an image as Ultralytics does for training."""
    height, width = pixels.shape[:2]
    ratio = longer_side / max(height, width)
    if ratio == 1:
        return pixels
    new_width = min(math.ceil(width * ratio), longer_side)
    new_height = min(math.ceil(height * ratio), longer_side)
    return cv2.resize(pixels, (new_width, new_height), interpolation=cv2.INTER_LINEAR)


class MixedPrecisionModel(DetectionModel):
    """A network that computes in `precision` during training, and its losses in float32.

    Ultralytics' mixed precision needs a GPU and downloads a network for a test.
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
    """Tensors, or lists and dicts of tensors, as float32."""
    if isinstance(value, dict):
        return {name: _to_float(tensor) for name, tensor in value.items()}
    if isinstance(value, list):
        return [tensor.float() for tensor in value]
    return value.float()


@dataclasses.dataclass(frozen=True)
class Plan:
    """Network, task and hyperparameters of a training run.

    Args:
        initial_weights: By the network's names; other layers start at random. None starts from
            scratch.
    """

    blueprint: YoloBlueprint
    task: Task
    recipe: YoloRecipe
    initial_weights: Mapping[str, Tensor] | None = None

    def identity(self) -> str:
        """Digest of everything the result depends on.

        A state with another identity is not resumed.
        """
        config = [dataclasses.asdict(self.recipe), dataclasses.asdict(self.blueprint)]
        weights: list[str | bytes] = []
        for name, tensor in (self.initial_weights or {}).items():
            weights.append(name)
            weights.append(tensor.float().numpy().tobytes())
        return digest(json.dumps(config), self.task.training.digest(), *weights)

    def network(self) -> MixedPrecisionModel:
        """The network to train."""
        torch.manual_seed(self.recipe.seed)
        network = build_network(self.blueprint, MixedPrecisionModel)
        network.precision = self.recipe.precision
        expected = network.state_dict()
        fitting_weights = {}
        for name, tensor in (self.initial_weights or {}).items():
            if name in expected and tensor.shape == expected[name].shape:
                fitting_weights[name] = tensor
        network.load_state_dict(fitting_weights, strict=False)
        return network.to(memory_format=torch.channels_last)


class Run(DetectionTrainer):
    """Ultralytics' trainer on farther's tables.

    Its state is saved without pickles, each epoch has its own seed, so that a resumed run ends like
    an uninterrupted one, and validation is farther's. Its name does not contain "Trainer" because
    Ultralytics attaches reporting to classes that do.
    """

    def __init__(self, plan: Plan, state: Mapping[str, Any] | None):
        self.plan = plan
        self.state = state
        self.log: list[dict[str, float]] = []
        device = plan.task.device
        device_name = device.type
        if device.type not in ("cpu", "mps"):
            device_name = str(device.index or 0)
        fixed = {
            # A name that Ultralytics accepts; `setup_model` builds the network.
            "model": "yolov8n.yaml",
            "imgsz": plan.blueprint.image_size,
            "device": device_name,
            "save_dir": str(plan.task.work / "ultralytics"),
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
        """Classes and images under Ultralytics' names."""
        names = dict(enumerate(self.plan.blueprint.classes))
        samples = {"train": self.plan.task.training, "val": self.plan.task.validation}
        return {**samples, "names": names, "nc": len(names), "channels": 3}

    def build_dataset(
        self, img_path: Samples, mode: str = "train", batch: int | None = None
    ) -> TableDataset:
        """Dataset of the samples; `img_path` is a value of `get_dataset`."""
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
        """Restores the state of an earlier run, if there is one."""
        if self.state is None:
            return
        self.model.load_state_dict(self.state["network"])
        self.ema.ema.load_state_dict(self.state["averaged"])
        self.ema.updates = self.state["updates"]
        self.optimizer.load_state_dict(self.state["optimizer"])
        self.log = self.state["log"]
        self.start_epoch = self.state["epoch"]
        criterion = self.model.init_criterion()
        self.model.criterion = criterion
        # Heads with two branches weight them by the number of epochs.
        if hasattr(criterion, "updates"):
            criterion.updates = self.start_epoch - 1
            criterion.update()

    def show_progress(self) -> None:
        """Starts the progress bar."""
        size = len(self.plan.task.training)
        self.bar = tqdm(
            total=self.epochs * size, initial=self.start_epoch * size, unit="image", smoothing=0.05
        )

    def begin_epoch(self) -> None:
        """Seeds all random generators by the seed and the epoch's number."""
        seed = int(digest(f"{self.plan.recipe.seed} {self.epoch}")[:8], 16)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (Ultralytics' augmentation draws from this generator)
        torch.manual_seed(seed)
        self.train_loader.generator.manual_seed(seed)
        self.train_loader.dataset.buffer.clear()
        self.train_loader.reset()

    def end_batch(self) -> None:
        """Updates the progress bar; TrainingError if the loss is not finite."""
        losses = {name: f"{value.item():.3f}" for name, value in self.tloss.items()}
        if not torch.isfinite(self.loss):
            raise TrainingError(
                f"epoch {self.epoch + 1}: the loss is not finite: {losses}. Lower learning_rate"
            )
        # The last batch of an epoch may be smaller.
        remaining = (self.epoch + 1) * len(self.plan.task.training) - self.bar.n
        self.bar.update(min(self.batch_size, remaining))
        self.bar.set_postfix({"epoch": self.epoch + 1, **losses}, refresh=False)

    def end_progress(self) -> None:
        """Closes the progress bar."""
        if hasattr(self, "bar"):
            self.bar.close()

    def validate(self) -> tuple[dict[str, float], None]:
        """mAP50 on the validation images in evaluated epochs.

        No fitness, as the last epoch is always used.
        """
        number = self.epoch + 1
        if number % self.plan.recipe.evaluate_epochs and number != self.epochs:
            return {}, None
        metrics = evaluate(self.ema.ema, self.plan.blueprint, self.plan.task.validation)
        return {"val_map50": metrics["ap50"]}, None

    def save_metrics(self, metrics: dict[str, float]) -> None:
        """Adds a row to the log.

        A step is one batch, whether or not the optimizer steps after it.
        """
        losses = {name: value.item() for name, value in self.tloss.items()}
        row = {
            "epoch": self.epoch + 1,
            "step": (self.epoch + 1) * len(self.train_loader),
            "learning_rate": metrics["lr/pg0"],
            "loss": sum(losses.values()),
            **losses,
        }
        if "val_map50" in metrics:
            row["val_map50"] = metrics["val_map50"]
        self.log.append(row)
        write_log(self.plan.task.log_file, self.log)

    def save_model(self) -> bool:
        """Saves the state of the run."""
        state = {
            "identity": self.plan.identity(),
            "epoch": self.epoch + 1,
            "log": self.log,
            "network": self.model.state_dict(),
            "averaged": self.ema.ema.state_dict(),
            "updates": self.ema.updates,
            "optimizer": self.optimizer.state_dict(),
        }
        write_state(self.plan.task.state_file, state)
        return True

    def final_eval(self) -> None:
        """Does nothing: the last epoch is already evaluated."""


def train(plan: Plan) -> DetectionModel:
    """Trains a network, or resumes a killed run; returns the averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image is absent or damaged, or has changed since it was ingested.
        ParameterError: the architecture cannot be built.
    """
    if plan.recipe.cache_images:
        plan.task.training.cache()
        plan.task.validation.cache()
    state = read_state(plan.task.state_file, plan.identity())
    if state is None or state["epoch"] < plan.recipe.epochs:
        with _only_warnings():
            run = Run(plan, state)
            run.train()
        return run.ema.ema.eval()
    network = plan.network()
    network.load_state_dict(state["averaged"])
    write_log(plan.task.log_file, state["log"])
    return network.eval()


@contextmanager
def _only_warnings() -> Iterator[None]:
    before = LOGGER.level
    LOGGER.setLevel(logging.WARNING)
    try:
        yield
    finally:
        LOGGER.setLevel(before)


def evaluate(
    network: DetectionModel, blueprint: YoloBlueprint, samples: Samples, batch_size: int = 16
) -> dict[str, Any]:
    """Metrics of a network in evaluation mode; see `farther.metrics.closed_set.evaluate`."""
    header = Header(classes=blueprint.classes, activation="sigmoid")
    selection = BoxSelection(score_threshold=0.001, iou=0.7, max_detections=100)
    stride = padding_stride(network.stride)

    def detect(images: list[np.ndarray], names: list[str]) -> Regions:
        prepared = [letterbox(image, blueprint.image_size, stride) for image in images]
        with torch.inference_mode():
            return replay(network, header, prepared, selection).regions(names)

    return evaluate_on(samples, batch_size, 0, detect)
