"""Trains the demo's small CLIP on images with captions (Radford et al. 2021, arXiv:2103.00020).

The network is open_clip's, in a folder that open_clip can load: `open_clip_config.json` and
`open_clip_model.safetensors`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from open_clip import CLIP, SimpleTokenizer
from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from farther.detectors.networks.weights import as_float32, read_tensors, write_tensors
from farther.images.device import torch_device
from farther.naming.registry import STRICT, Parameters
from farther.tables.documents import write_json
from farther.tables.files import digest, inside
from farther.tables.writing import delete_work, write_aside
from farther_training.clip_pictures import (
    Captioned,
    caption,
    compose,
    compose_held_out,
    sentences,
    vocabulary,
    words,
)
from farther_training.ranges import Count, Fraction
from farther_training.recipe import Recipe
from farther_training.run import State, make_optimizer, write_log

#: Prompt of a name.
QUESTION = "a photo of a {}"

#: Number of images that `zero_shot` encodes at a time.
ZERO_SHOT_BATCH = 256


@dataclass(config=STRICT, kw_only=True)
class ClipArchitecture(Parameters):
    """A small CLIP: open_clip's modified ResNet and a text transformer.

    Args:
        image_size: Side of the square that images are resized to; a multiple of 32.
        layers: Number of blocks in each stage of the ResNet.
        width: Number of channels of its first stage.
        embedding: Dimension of the embeddings.
        text_width, text_layers, text_heads: Size of the text transformer. Nearly all of its
            parameters are the embeddings of CLIP's 49,408 tokens, each of dimension `text_width`.
        context_length: Largest number of tokens of a caption.
    """

    image_size: Annotated[int, Field(ge=32, multiple_of=32)] = 64
    layers: tuple[Count, Count, Count, Count] = (1, 1, 1, 1)
    width: Annotated[int, Field(ge=2, multiple_of=2)] = 16
    embedding: Count = 64
    text_width: Count = 32
    text_layers: Count = 2
    text_heads: Count = 4
    context_length: Count = 24

    def config(self) -> dict[str, Any]:
        """Content of `open_clip_config.json`."""
        vision = {
            "image_size": self.image_size,
            "layers": list(self.layers),
            "width": self.width,
            "head_width": 64,
        }
        text = {
            "context_length": self.context_length,
            "vocab_size": 49_408,
            "width": self.text_width,
        }
        text |= {"heads": self.text_heads, "layers": self.text_layers}
        model = {"embed_dim": self.embedding, "vision_cfg": vision, "text_cfg": text}
        return {"model_cfg": model, "preprocess_cfg": {"resize_mode": "squash"}}


@dataclass(config=STRICT, kw_only=True)
class ClipRecipe(Parameters):
    """Hyperparameters of the small CLIP.

    Args:
        pictures: Number of training images to draw.
        epochs: Passes over the images.
        batch_size: Images per step, contrasted with each other.
        learning_rate, weight_decay, warmup_steps: See `farther_training.recipe.Recipe`.
        final_learning_rate, clip_norm, average, precision: See `farther_training.recipe.Recipe`.
        crop: Smallest fraction of an image's side in a random crop.
        seed: Seed of the images, the weights, the order and the captions.
        checkpoint_steps: Interval in steps at which the state of the run is saved.
    """

    pictures: Count = 14_000
    epochs: Count = 26
    batch_size: Annotated[int, Field(ge=2)] = 128
    learning_rate: Annotated[float, Field(gt=0)] = 0.002
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    warmup_steps: Annotated[int, Field(ge=0)] = 100
    final_learning_rate: Fraction = 0.02
    clip_norm: float = 1.0
    average: Annotated[float, Field(ge=0, lt=1)] = 0.998
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    crop: Annotated[float, Field(gt=0, le=1)] = 0.75
    seed: int = 0
    checkpoint_steps: Count = 500

    def schedule(self) -> Recipe:
        """The hyperparameters that all networks share."""
        names = (
            "epochs",
            "batch_size",
            "learning_rate",
            "weight_decay",
            "warmup_steps",
            "final_learning_rate",
            "clip_norm",
            "average",
            "precision",
            "seed",
        )
        shared = {name: getattr(self, name) for name in names}
        return Recipe(optimizer="adamw", **shared)


class ClipRun(State["CLIP", Recipe, tuple[Tensor, Tensor, Tensor, Tensor]]):
    """A training run of a CLIP; the optimizer and the identity come from the arguments."""

    def __init__(
        self,
        architecture: ClipArchitecture,
        clip: ClipRecipe,
        pictures: Captioned,
        device: torch.device,
        state_file: Path,
    ):
        torch.manual_seed(clip.seed)
        recipe = clip.schedule()
        network = build(architecture).to(device, memory_format=torch.channels_last)
        config = json.dumps([asdict(architecture), asdict(clip), pictures.concepts])
        identity = digest(config, pictures.pixels.tobytes())
        optimizer = make_optimizer(recipe, [(1.0, list(network.parameters()))])
        super().__init__(network, optimizer, recipe, state_file, identity)
        self.clip = clip
        self.pictures = pictures
        self.device = device
        self.fitting = pictures.fitting()
        self.tokenizer = tokenizer(architecture)
        # All words are queried in every step: a batch has few captions to separate an image from.
        self.questions = self.tokenizer([QUESTION.format(word) for word in vocabulary()]).to(device)
        self.per_epoch = max(1, len(pictures) // clip.batch_size)
        self.steps = self.per_epoch * clip.epochs

    def compute_losses(self, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
        """Contrastive loss of images and captions, and cross-entropy of images and all words."""
        images, texts, same, fitting = batch
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"
        ):
            image_embeddings = self.network.encode_image(images, normalize=True).float()
        encoded = self.network.encode_text(torch.cat([texts, self.questions]), normalize=True)
        captions, words = encoded.float().split([len(texts), len(self.questions)])
        scale = self.network.logit_scale.exp()
        caption_loss = contrastive_loss(image_embeddings, captions, scale, same)
        word_loss = functional.cross_entropy(scale * image_embeddings @ words.T, fitting)
        return {"loss": caption_loss + word_loss}

    @torch.no_grad()
    def after_step(self) -> None:
        """Limits the scale of the logits to 1 to 100, as in CLIP."""
        self.network.logit_scale.clamp_(0, float(np.log(100)))

    def batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Images, tokens of captions, equal captions and fitting words of the current step."""
        epoch, position = divmod(self.step, self.per_epoch)
        order = np.random.default_rng([self.clip.seed, epoch]).permutation(len(self.pictures))
        start = position * self.clip.batch_size
        rows = order[start : start + self.clip.batch_size]

        rng = np.random.default_rng([self.clip.seed, epoch, position])
        captions = []
        for row in rows:
            captions.append(caption(self.pictures.concepts[row], self.pictures.places[row], rng))
        caption_index = np.unique(captions, return_inverse=True)[1]
        same = torch.from_numpy(caption_index[:, None] == caption_index[None, :])
        images = normalised(torch.from_numpy(self.pictures.pixels[rows]))
        images = changed(images, self.clip.crop, rng)
        texts = self.tokenizer(captions)
        fitting = torch.from_numpy(self.fitting[rows])
        return (
            images.to(self.device),
            texts.to(self.device),
            same.to(self.device),
            fitting.to(self.device),
        )


def train(
    architecture: ClipArchitecture,
    recipe: ClipRecipe,
    pictures: Captioned,
    validation: Captioned,
    state_file: Path,
    log_file: Path,
    device: torch.device,
) -> CLIP:
    """Trains a CLIP, or resumes a killed run; returns the averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
    """
    run = ClipRun(architecture, recipe, pictures, device, state_file)
    run.resume()
    with tqdm(total=run.steps, initial=run.step, unit="step", mininterval=5) as bar:
        while run.step < run.steps:
            run.learn(run.batch())
            bar.update()
            if run.step % run.per_epoch == 0:
                accuracy = zero_shot(run.averaged, run.tokenizer, validation)
                run.end_epoch(run.step // run.per_epoch, {"val_zero_shot": accuracy})
                bar.set_postfix(run.log[-1], refresh=False)
                write_log(log_file, run.log)
                run.save()
            elif run.step % recipe.checkpoint_steps == 0:
                run.save()
    forget_unread_tokens(run.averaged, run.tokenizer)
    return run.averaged


def forget_unread_tokens(network: CLIP, tokenize: Any) -> None:
    """Sets the embeddings of tokens that no caption contains to zero.

    Training never changed their random values.
    """
    read = torch.zeros(len(network.token_embedding.weight), dtype=torch.bool)
    read[tokenize(sentences()).unique()] = True
    with torch.no_grad():
        network.token_embedding.weight[~read.to(network.token_embedding.weight.device)] = 0


def build(architecture: ClipArchitecture) -> CLIP:
    """An untrained network."""
    return CLIP(**architecture.config()["model_cfg"])


def tokenizer(architecture: ClipArchitecture) -> Any:
    """Callable that maps n captions to their tokens, int64 of shape (n, context length)."""
    return SimpleTokenizer(context_length=architecture.context_length)


def contrastive_loss(images: Tensor, captions: Tensor, scale: Tensor, same: Tensor) -> Tensor:
    """CLIP's symmetric cross-entropy; images with equal captions have several correct ones.

    Args:
        images, captions: Their embeddings, (N, D), of length 1.
        scale: Factor of the cosine similarities.
        same: bool (N, N): pairs with equal captions; the diagonal is True.
    """
    logits = scale * images @ captions.T
    target = same / same.sum(dim=1, keepdim=True)
    image_loss = functional.cross_entropy(logits, target)
    caption_loss = functional.cross_entropy(logits.T, target)
    return (image_loss + caption_loss) / 2


def normalised(pixels: Tensor) -> Tensor:
    """Images, uint8 (N, H, W, 3), as CLIP's input, float32 (N, 3, H, W)."""
    mean = 255 * torch.tensor(OPENAI_DATASET_MEAN, device=pixels.device)
    std = 255 * torch.tensor(OPENAI_DATASET_STD, device=pixels.device)
    # Channels stay last in memory, for faster convolutions.
    return ((pixels - mean) / std).permute(0, 3, 1, 2)


def changed(images: Tensor, crop: float, rng: np.random.Generator) -> Tensor:
    """Random crops of images (N, 3, H, W), scaled to full size.

    Half of them are mirrored; brightness and contrast are random.
    """
    count = len(images)
    crop_size = rng.uniform(crop, 1, (count, 2))
    shift = rng.uniform(-1, 1, (count, 2)) * (1 - crop_size)
    mirror = rng.choice([-1, 1], count)
    theta = np.zeros((count, 2, 3), dtype=np.float32)
    theta[:, 0, 0] = mirror * crop_size[:, 0]
    theta[:, 1, 1] = crop_size[:, 1]
    theta[:, :, 2] = shift
    grid = functional.affine_grid(
        torch.from_numpy(theta).to(images), list(images.shape), align_corners=False
    )
    moved = functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    brightness = torch.from_numpy(rng.normal(0, 0.15, (count, 1, 1, 1))).to(images)
    contrast = torch.from_numpy(rng.uniform(0.8, 1.2, (count, 1, 1, 1))).to(images)
    return (moved * contrast + brightness).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def zero_shot(network: CLIP, tokenize: Any, pictures: Captioned) -> float:
    """Fraction of the images of a single object whose nearest name is one of the object's.

    NaN without such images.
    """
    names = sorted(all_names())
    device = next(network.parameters()).device
    single_object_rows = []
    for row, concepts in enumerate(pictures.concepts):
        if len(concepts) == 1:
            single_object_rows.append(row)
    if not single_object_rows:
        return float("nan")

    prompts = tokenize([QUESTION.format(name) for name in names]).to(device)
    name_embeddings = network.encode_text(prompts, normalize=True)
    correct = 0
    for start in range(0, len(single_object_rows), ZERO_SHOT_BATCH):
        rows = single_object_rows[start : start + ZERO_SHOT_BATCH]
        images = normalised(torch.from_numpy(pictures.pixels[rows]).to(device))
        image_embeddings = network.encode_image(images, normalize=True)
        nearest = (image_embeddings @ name_embeddings.T).argmax(dim=1).tolist()
        for row, index in zip(rows, nearest, strict=True):
            (concept,) = pictures.concepts[row]
            if names[index] in words()[concept].names:
                correct += 1
    return correct / len(single_object_rows)


def all_names() -> set[str]:
    """The names of all concepts."""
    names: set[str] = set()
    for concept in words().values():
        names.update(concept.names)
    return names


CARD = (
    "# clip\n"
    "\n"
    "A small CLIP, {millions:.1f} million parameters, for the demo world only: it was "
    "trained only on images of its drawings,\n"
    "{size} pixels wide. open_clip loads this folder directly: "
    '`open_clip.create_model("local-dir:data/demo/clip")`.\n'
    "\n"
    "Trained on {pictures} images of {concepts} concepts with the names of the four demo "
    "datasets, in-distribution and\n"
    "unknown classes alike, as a CLIP trained on the web has seen both. No image is part of "
    "a dataset, and none contains a\n"
    "drawing that is held out for test. Most unknown concepts have a single drawing, which "
    "CLIP has seen in other scenes.\n"
    "Captions also contain the kind of each object (COCO's supercategories, OpenImages' "
    "hierarchy) and place half of all food\n"
    "and tableware on a dining table, visible or not; these words partly determine which "
    "images it finds near.\n"
    "\n"
    "For images with one object, the nearest of all {names} names is correct for {val:.1%}; "
    "with held-out drawings of the\n"
    "in-distribution classes, for {held_out:.1%}.\n"
    "\n"
    "Its training images are composed from drawings of OpenMoji (https://openmoji.org), "
    "licence CC BY-SA 4.0.\n"
    "\n"
    "The same as JSON, including the recipe: [card.json](card.json).\n"
)


@dataclass(config=STRICT, kw_only=True)
class ClipJob(Parameters):
    """Parameters of the job.

    Args:
        folder: The folder to write; an existing one is replaced.
        architecture: The network.
        recipe: Hyperparameters.
        validation_pictures: Number of validation images, and of test images with held-out drawings.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
    """

    folder: Path
    architecture: Annotated[ClipArchitecture, Field(default_factory=ClipArchitecture)]
    recipe: Annotated[ClipRecipe, Field(default_factory=ClipRecipe)]
    validation_pictures: Count = 1000
    device: str = "auto"


def run_job(name: str, job: ClipJob, artifacts: Path) -> dict[str, Any]:
    """Draws images, trains or resumes a killed run, and writes the folder, its card and the log.

    Returns the card.

    Raises:
        ParameterError: the device is unknown.
        TrainingError: the loss is not finite.
    """
    device = torch_device(job.device)
    work = inside(artifacts / ".work" / "train", name)
    size = job.architecture.image_size
    seed = job.recipe.seed
    count = job.validation_pictures
    # Validation images differ from training images by their seed.
    pictures = compose(job.recipe.pictures, size, seed)
    validation = compose(count, size, seed + 1)
    log_file = inside(artifacts / "train", name) / "log.csv"
    network = train(
        job.architecture, job.recipe, pictures, validation, work / "state.pt", log_file, device
    )
    with write_aside(job.folder) as aside:
        aside.mkdir()
        weights = aside / "open_clip_model.safetensors"
        write_tensors(weights, network.state_dict(), {"name": name})
        write_json(aside / "open_clip_config.json", job.architecture.config())
        network.load_state_dict(as_float32(read_tensors(weights)))
        tokenize = tokenizer(job.architecture)
        held_out = zero_shot(network, tokenize, compose_held_out(count, size, seed + 1))
        metrics = {"val": zero_shot(network, tokenize, validation), "held_out": held_out}
        card = _card(name, job, sum(p.numel() for p in network.parameters()), metrics)
        write_json(aside / "card.json", card)
        (aside / "README.md").write_text(_markdown(card), encoding="utf-8")
    delete_work(work)
    return card


def _card(name: str, job: ClipJob, parameters: int, metrics: dict[str, float]) -> dict[str, Any]:
    """The card; a metric that is NaN becomes None."""
    rounded_metrics: dict[str, float | None] = {}
    for key, value in metrics.items():
        rounded_metrics[key] = None if np.isnan(value) else round(value, 6)
    return {
        "name": name,
        "architecture": {**asdict(job.architecture), "layers": list(job.architecture.layers)},
        "parameters": parameters,
        "pictures": job.recipe.pictures,
        "concepts": len(words()),
        "names": len(all_names()),
        "recipe": asdict(job.recipe),
        "torch": torch.__version__,
        "open_clip_torch": version("open_clip_torch"),
        "metrics": rounded_metrics,
    }


def _markdown(card: dict[str, Any]) -> str:
    metrics = {key: np.nan if value is None else value for key, value in card["metrics"].items()}
    size = card["architecture"]["image_size"]
    return CARD.format_map({**card, **metrics, "size": size, "millions": card["parameters"] / 1e6})
