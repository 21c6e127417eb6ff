"""Training YOLOv8 and its relatives with Ultralytics' own trainer: seeded, and resumed where a killed run stopped."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import cv2
import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from farther.detectors.networks.detection import autocast
from farther.detectors.networks.yolo import Suppression, YoloBlueprint, build_network, detect_regions, letterbox
from farther.metrics import closed_set
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest, inside, write_aside
from farther.training.faster_rcnn import TrainingError, write_log
from farther.training.recipe import Count, Fraction, Positive
from farther.training.samples import Samples

from ultralytics.data.dataset import YOLODataset  # isort: skip: farther's import of it has no side effects
from ultralytics.models.yolo.detect import DetectionTrainer  # isort: skip
from ultralytics.nn.tasks import DetectionModel  # isort: skip
from ultralytics.utils import LOGGER  # isort: skip


@dataclass(config=STRICT, kw_only=True)
class YoloRecipe:
    """Parameters of a training run. The defaults are those of FMIYC, Appendix G.1: Ultralytics' own but for the optimizer,
    its learning rate and the cosine.

    The paper also names copy-paste and erasing. Ultralytics copies only objects that have masks, and erases only for
    classifiers: for boxes neither does anything, so neither is a parameter.

    Args:
        epochs: Passes over the training images.
        batch_size: Images that go through the network together.
        nominal_batch: Gradients of batches are added up until about so many images were seen, then the optimizer steps.
        optimizer: A name that Ultralytics knows: "AdamW", "SGD", …
        learning_rate: At its highest.
        final_learning_rate: Fraction of `learning_rate` that the cosine ends at.
        momentum: Of SGD; for AdamW its β₁.
        weight_decay: Of matrices and kernels; biases and normalisations have none.
        warmup_epochs: In which learning rate and momentum rise.
        warmup_bias_learning_rate: Where the biases' learning rate starts: above all others, as their outputs do. For AdamW,
            whose steps are as long as the rate, 0 is better.
        mosaic: Probability that four images are put together.
        close_mosaic: Epochs at the end that are without mosaic.
        translate: Largest shift, as a fraction of the image's side.
        scale: Largest relative change of size.
        flip: Probability of a mirror image.
        hue, saturation, value: Largest relative change of the colours.
        precision: What the network computes in; losses are computed in float32.
        seed: Of the weights, the order of images and the augmentation.
        workers: Processes that read and augment. Without a GPU there are none.
        cache_images: Whether decoded images are kept in memory.
        evaluate_epochs: Epochs between two looks at the validation images; the last epoch has one in any case.
    """

    epochs: Count = 100
    batch_size: Count = 16
    nominal_batch: Count = 64
    optimizer: str = "AdamW"
    learning_rate: Positive = 1e-3
    final_learning_rate: Fraction = 0.01
    momentum: Fraction = 0.937
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    warmup_epochs: Annotated[float, Field(ge=0)] = 3.0
    warmup_bias_learning_rate: Annotated[float, Field(ge=0)] = 0.1
    mosaic: Fraction = 1.0
    close_mosaic: Annotated[int, Field(ge=0)] = 10
    translate: Fraction = 0.1
    scale: Fraction = 0.5
    flip: Fraction = 0.5
    hue: Fraction = 0.015
    saturation: Fraction = 0.7
    value: Fraction = 0.4
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 8
    cache_images: bool = False
    evaluate_epochs: Count = 1

    def to_ultralytics(self) -> dict[str, Any]:
        """The same under Ultralytics' names."""
        return {
            "epochs": self.epochs,
            "batch": self.batch_size,
            "nbs": self.nominal_batch,
            "optimizer": self.optimizer,
            "lr0": self.learning_rate,
            "lrf": self.final_learning_rate,
            "cos_lr": True,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "warmup_epochs": self.warmup_epochs,
            "warmup_bias_lr": self.warmup_bias_learning_rate,
            "mosaic": self.mosaic,
            "close_mosaic": self.close_mosaic,
            "translate": self.translate,
            "scale": self.scale,
            "fliplr": self.flip,
            "hsv_h": self.hue,
            "hsv_s": self.saturation,
            "hsv_v": self.value,
            "seed": self.seed,
            "workers": self.workers,
            "cache": "ram" if self.cache_images else False,
        }


class TableDataset(YOLODataset):
    """Images and boxes of `Samples`, where Ultralytics would look for image folders and label files."""

    def __init__(self, samples: Samples, **params: Any):
        self.samples = samples
        super().__init__(img_path="", **params)

    def get_img_files(self, img_path: str) -> list[str]:
        """The images' paths."""
        # Boxes refer to the pixels as stored, whatever orientation the camera noted.
        self.cv2_flag |= cv2.IMREAD_IGNORE_ORIENTATION
        return [str(inside(self.samples.root, file)) for file in self.samples.images.file]

    def get_labels(self) -> list[dict[str, Any]]:
        """Each image's boxes, as Ultralytics writes them: centre and size, as fractions of the image's."""
        labels = []
        images = self.samples.images
        for row, file in enumerate(self.im_files):
            size = np.array([images.width[row], images.height[row]], dtype=np.float32)
            corners = self.samples._boxes[row].reshape(-1, 2, 2) / size
            boxes = np.concatenate([corners.mean(axis=1), corners[:, 1] - corners[:, 0]], axis=1)
            labels.append(
                {
                    "im_file": file,
                    "shape": (int(size[1]), int(size[0])),
                    "cls": self.samples._labels[row].astype(np.float32)[:, None],
                    "bboxes": boxes.astype(np.float32),
                    "segments": [],
                    "keypoints": None,
                    "normalized": True,
                    "bbox_format": "xywh",
                }
            )
        return labels

    def forget(self) -> None:
        """Empties the store of recent images that mosaics draw from, so that an epoch depends on none before it."""
        for row in self.buffer:
            self.ims[row] = self.im_hw0[row] = self.im_hw[row] = None
        self.buffer.clear()


class MixedPrecisionModel(DetectionModel):
    """A network that computes in `precision` while it learns, and its losses in float32.

    Ultralytics' own mixed precision needs a GPU and first fetches a network to try it out.
    """

    precision: str = "float32"

    def loss(self, batch: dict[str, Any], preds: Any = None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
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


class Run(DetectionTrainer):
    """Ultralytics' trainer on farther's tables.

    Its data come from tables, its state is kept without pickles and written aside, each epoch has its own seed, so that a
    run that was killed ends as one that was not, and validation is farther's own. (Its name lacks the word "Trainer":
    Ultralytics attaches reporting to classes that have it.)

    Args:
        blueprint: The network.
        training: What it learns from.
        validation: What its mAP is watched on; no decision depends on it.
        recipe: How it is trained.
        work: Folder for the state of the unfinished run.
        log_file: CSV to write.
        device: Where to train.
    """

    def __init__(
        self,
        blueprint: YoloBlueprint,
        training: Samples,
        validation: Samples,
        recipe: YoloRecipe,
        work: Path,
        log_file: Path,
        device: torch.device,
    ):
        self.blueprint, self.training, self.validation, self.recipe = blueprint, training, validation, recipe
        self.state_file, self.log_file = work / "state.pt", log_file
        described = [asdict(recipe), blueprint.architecture, blueprint.classes, blueprint.image_size]
        self.identity = digest(json.dumps(described), training.digest())
        self.log: list[dict[str, float]] = []
        fixed = {
            "model": "yolov8n.yaml",  # a name that Ultralytics accepts; `setup_model` decides
            "imgsz": blueprint.image_size,
            "device": "cpu" if device.type == "cpu" else str(device.index or 0),
            "save_dir": str(work / "ultralytics"),
            "amp": False,
            "plots": False,
            "verbose": False,
        }
        super().__init__(overrides={**recipe.to_ultralytics(), **fixed})
        self.add_callback("on_train_epoch_start", Run.begin_epoch)
        self.add_callback("on_train_batch_end", Run.end_batch)

    def get_dataset(self) -> dict[str, Any]:
        """Classes and images, under the names that Ultralytics uses."""
        names = dict(enumerate(self.blueprint.classes))
        return {"train": self.training, "val": self.validation, "names": names, "nc": len(names), "channels": 3}

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
            rect=mode == "val",
            cache=self.args.cache if mode == "train" else None,
            stride=self.stride,
            pad=0.0,
        )

    def setup_model(self) -> None:
        """Builds the network."""
        torch.manual_seed(self.recipe.seed)
        self.model = build_network(self.blueprint, MixedPrecisionModel).to(memory_format=torch.channels_last)
        self.model.precision = self.recipe.precision

    def begin_epoch(self) -> None:
        """Seeds all that is random in an epoch by the seed and the epoch's number alone."""
        seed = int(digest(f"{self.recipe.seed} {self.epoch}")[:8], 16)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002: Ultralytics' augmentation draws from this generator
        torch.manual_seed(seed)
        self.train_loader.generator.manual_seed(seed)
        self.train_loader.dataset.forget()
        self.train_loader.reset()
        self.bar = tqdm(total=len(self.training), desc=f"epoch {self.epoch + 1}/{self.epochs}", unit="image")

    def end_batch(self) -> None:
        """Shows progress.

        Raises:
            TrainingError: the loss is not finite.
        """
        self.bar.update(min(self.batch_size, self.bar.total - self.bar.n))
        losses = {name: f"{value.item():.3f}" for name, value in self.tloss.items()}
        self.bar.set_postfix(losses, refresh=False)
        if self.bar.n == self.bar.total:
            self.bar.close()
        if not torch.isfinite(self.loss):
            raise TrainingError(f"epoch {self.epoch + 1}: the loss is not finite: {losses}. Lower learning_rate")

    def validate(self) -> tuple[dict[str, float], None]:
        """mAP50 on the validation images, in the epochs that have it. No fitness: no epoch is preferred to the last."""
        number = self.epoch + 1
        if number % self.recipe.evaluate_epochs and number != self.epochs:
            return {}, None
        return {"val_map50": evaluate(self.ema.ema, self.blueprint, self.validation)["ap50"]}, None

    def save_metrics(self, metrics: dict[str, float]) -> None:
        """Adds a row to the log: epoch, learning rate, mean losses, mAP50."""
        row = {"epoch": self.epoch + 1, "learning_rate": metrics["lr/pg0"]}
        row |= {f"loss_{name}": value.item() for name, value in self.tloss.items()}
        self.log.append(row | {name: value for name, value in metrics.items() if name == "val_map50"})
        write_log(self.log_file, self.log)

    def save_model(self) -> bool:
        """Writes the state aside and renames it: a kill leaves the last whole one."""
        state = {
            "identity": self.identity,
            "epoch": self.epoch + 1,
            "log": self.log,
            "network": self.model.state_dict(),
            "averaged": self.ema.ema.state_dict(),
            "updates": self.ema.updates,
            "optimizer": self.optimizer.state_dict(),
        }
        with write_aside(self.state_file) as aside:
            torch.save(state, aside)
        return True

    def resume_training(self, ckpt: None) -> None:
        """Goes on where an earlier run of the same identity stopped, if one did."""
        if not self.state_file.exists():
            return
        state = torch.load(self.state_file, map_location="cpu", weights_only=True)
        if state["identity"] != self.identity:
            return
        self.model.load_state_dict(state["network"])
        self.ema.ema.load_state_dict(state["averaged"])
        self.ema.updates = state["updates"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.log, self.start_epoch = state["log"], state["epoch"]

    def final_eval(self) -> None:
        """Nothing: the last epoch was evaluated, and the caller says what is done with the network."""


def train(
    blueprint: YoloBlueprint,
    training: Samples,
    validation: Samples,
    recipe: YoloRecipe,
    work: Path,
    log_file: Path,
    device: torch.device,
) -> DetectionModel:
    """Trains a network, or goes on with a run that was killed; see `Run`.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image's file name leaves its root.
    """
    with _only_warnings():
        run = Run(blueprint, training, validation, recipe, work, log_file, device)
        run.train()
    return run.ema.ema.eval()


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
    """Closed-set figures (COCO's mAP) of a network on the images of a subset; see `farther.metrics.closed_set.evaluate`.

    Args:
        network: In evaluation mode.
    """
    header = Header(classes=blueprint.classes, activation="sigmoid")
    suppression = Suppression(score_threshold=0.001, iou=0.7, max_detections=100)
    stride = int(network.stride.max())
    found = []
    for start in range(0, len(samples), batch_size):
        rows = range(start, min(start + batch_size, len(samples)))
        images = [letterbox(samples.pixels(row), blueprint.image_size, stride) for row in rows]
        names = [samples.images.image_id[row] for row in rows]
        found.append(detect_regions(network, header, images, names, suppression))
    return closed_set.evaluate(samples.objects, Regions.concatenate(found), blueprint.classes)
