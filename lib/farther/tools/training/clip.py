"""Training a CLIP: pictures and captions that belong together come to lie close (Radford et al. 2021).

The network is open_clip's, in a folder that open_clip loads by itself: `open_clip_config.json` and
`open_clip_model.safetensors`.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from farther.registry import STRICT
from farther.tables.files import digest, write_aside
from farther.tools.training.clip_pictures import Captioned, caption, sentences, vocabulary, words
from farther.tools.training.recipe import Count, Fraction, Recipe
from farther.tools.training.run import TrainingError, make_optimizer, write_log

if TYPE_CHECKING:
    from open_clip import CLIP

#: What a name is put into when it is asked for.
QUESTION = "a photo of a {}"


@dataclass(config=STRICT, kw_only=True)
class ClipArchitecture:
    """A small CLIP: open_clip's modified ResNet beside a text transformer.

    Args:
        image_size: Side of the square that a picture is squeezed into; a multiple of 32.
        layers: Blocks in each stage of the ResNet.
        width: Channels of its first stage.
        embedding: Numbers in an embedding.
        text_width, text_layers, text_heads: Of the text transformer. Nearly all of its size is the table of CLIP's
            49,408 tokens, each `text_width` wide.
        context_length: Tokens of a caption that are read.
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
        """What `open_clip_config.json` holds."""
        vision = {"image_size": self.image_size, "layers": list(self.layers), "width": self.width, "head_width": 64}
        text = {"context_length": self.context_length, "vocab_size": 49_408, "width": self.text_width}
        text |= {"heads": self.text_heads, "layers": self.text_layers}
        model = {"embed_dim": self.embedding, "vision_cfg": vision, "text_cfg": text}
        return {"model_cfg": model, "preprocess_cfg": {"resize_mode": "squash"}}


@dataclass(config=STRICT, kw_only=True)
class ClipRecipe:
    """How the small CLIP is trained.

    Args:
        pictures: How many are drawn.
        epochs: Passes over them.
        batch_size: Pictures a step; each is told from all others of its batch.
        learning_rate, weight_decay, warmup_steps, final_learning_rate, clip_norm, average, precision: See
            `farther.tools.training.recipe.Recipe`.
        crop: Smallest share of a picture's side that is looked at.
        seed: Of the pictures, the weights, the order and the captions.
        checkpoint_steps: Steps after which the state of the run is written.
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
        """The part that all networks of the project share."""
        names = ("epochs", "batch_size", "learning_rate", "weight_decay", "warmup_steps", "final_learning_rate")
        shared = {name: getattr(self, name) for name in (*names, "clip_norm", "average", "precision", "seed")}
        return Recipe(optimizer="adamw", **shared)


class ClipRun:
    """The state of a training run: network, optimizer, moving average, and how far it came.

    Args:
        architecture: The network.
        recipe: How it is trained.
        pictures: What it learns from.
        device: Where to train.
        state_file: Where the state is kept while the run is unfinished.
    """

    def __init__(
        self,
        architecture: ClipArchitecture,
        recipe: ClipRecipe,
        pictures: Captioned,
        device: torch.device,
        state_file: Path,
    ):
        torch.manual_seed(recipe.seed)
        self.recipe, self.pictures, self.device, self.state_file = recipe, pictures, device, state_file
        self.fitting = pictures.fitting()
        self.schedule = recipe.schedule()
        self.network = build(architecture).to(device, memory_format=torch.channels_last)
        self.tokenizer = tokenizer(architecture)
        # All words are asked for in every step: a batch alone has few captions to tell a picture from.
        self.questions = self.tokenizer([QUESTION.format(word) for word in vocabulary()]).to(device)
        self.averaged = copy.deepcopy(self.network).eval()
        self.optimizer = make_optimizer(self.schedule, [(1.0, list(self.network.parameters()))])
        self.per_epoch = max(1, len(pictures) // recipe.batch_size)
        self.step = 0
        self.losses: list[float] = []
        self.log: list[dict[str, float]] = []
        facts = json.dumps([asdict(architecture), asdict(recipe), pictures.concepts])
        self.identity = digest(facts, pictures.pixels.tobytes())

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.per_epoch * self.recipe.epochs

    def learn(self) -> None:
        """One step; all that is random in it depends on the seed and the step's number alone.

        Raises:
            TrainingError: the loss is not finite.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate_at(self.step, self.steps)
        images, texts, same, fitting = self._batch()
        self.network.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
            seen = self.network.encode_image(images, normalize=True)
        said = self.network.encode_text(torch.cat([texts, self.questions]), normalize=True)
        captions, asked = said.float().split([len(texts), len(self.questions)])
        scale = self.network.logit_scale.exp()
        loss = contrastive_loss(seen.float(), captions, scale, same)
        loss = loss + functional.cross_entropy(scale * seen.float() @ asked.T, fitting)
        if not torch.isfinite(loss):
            raise TrainingError(f"step {self.step}: the loss is not finite. Lower learning_rate")
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        with torch.no_grad():
            self.network.logit_scale.clamp_(0, float(np.log(100)))
        self.step += 1
        self._average()
        self.losses.append(loss.item())

    def _batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Images, tokens of their captions, which captions say the same, and which words of the world fit."""
        epoch, place = divmod(self.step, self.per_epoch)
        order = np.random.default_rng([self.recipe.seed, epoch]).permutation(len(self.pictures))
        rows = order[place * self.recipe.batch_size : (place + 1) * self.recipe.batch_size]
        rng = np.random.default_rng([self.recipe.seed, epoch, place])
        captions = [caption(self.pictures.concepts[r], self.pictures.places[r], rng) for r in rows]
        number = np.unique(captions, return_inverse=True)[1]
        images = changed(normalised(torch.from_numpy(self.pictures.pixels[rows])), self.recipe.crop, rng)
        same = torch.from_numpy(number[:, None] == number[None, :])
        found = (images, self.tokenizer(captions), same, torch.from_numpy(self.fitting[rows]))
        images, texts, same, fitting = (tensor.to(self.device) for tensor in found)
        return images, texts, same, fitting

    def _average(self) -> None:
        decay = min(self.recipe.average, self.step / (self.step + 10)) if self.recipe.average else 0.0
        with torch.no_grad():
            pairs = zip(self.averaged.state_dict().values(), self.network.state_dict().values(), strict=True)
            for mean, value in pairs:
                if mean.is_floating_point():
                    mean.lerp_(value, 1 - decay)
                else:
                    mean.copy_(value)

    def end_epoch(self, figures: dict[str, float]) -> None:
        """Notes an epoch's mean loss and its figures."""
        row = {"epoch": float(self.step // self.per_epoch), "step": float(self.step)}
        row |= {"learning_rate": self.optimizer.param_groups[0]["lr"], "loss": float(np.mean(self.losses))}
        self.log.append(row | figures)
        self.losses.clear()

    def save(self) -> None:
        """Writes the state aside and renames it: a kill leaves the last whole one."""
        parts = {"network": self.network, "averaged": self.averaged, "optimizer": self.optimizer}
        state = {name: part.state_dict() for name, part in parts.items()}
        facts = {"identity": self.identity, "step": self.step, "losses": self.losses, "log": self.log}
        with write_aside(self.state_file) as aside:
            torch.save(state | facts, aside)

    def resume(self) -> None:
        """Goes on where an earlier run of the same identity stopped, if one did."""
        if not self.state_file.exists():
            return
        state = torch.load(self.state_file, map_location="cpu", weights_only=True)
        if state["identity"] != self.identity:
            return
        self.network.load_state_dict(state["network"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.losses, self.log = state["step"], state["losses"], state["log"]


def train(
    architecture: ClipArchitecture,
    recipe: ClipRecipe,
    pictures: Captioned,
    validation: Captioned,
    state_file: Path,
    log_file: Path,
    device: torch.device,
) -> CLIP:
    """Trains a CLIP, or goes on with a run that was killed.

    Args:
        architecture: The network to build.
        recipe: How.
        pictures: What it learns from.
        validation: What `zero_shot` is watched on after each epoch; no decision depends on it.
        state_file: Where the state of an unfinished run is kept.
        log_file: CSV to write: epoch, step, learning rate, mean loss, zero-shot accuracy.
        device: Where to train.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
    """
    run = ClipRun(architecture, recipe, pictures, device, state_file)
    run.resume()
    with tqdm(total=run.steps, initial=run.step, unit="step", mininterval=5) as bar:
        while run.step < run.steps:
            run.learn()
            bar.update()
            if run.step % run.per_epoch == 0:
                run.end_epoch({"val_zero_shot": zero_shot(run.averaged, run.tokenizer, validation)})
                bar.set_postfix(run.log[-1], refresh=False)
                write_log(log_file, run.log)
                run.save()
            elif run.step % recipe.checkpoint_steps == 0:
                run.save()
    forget_unread_tokens(run.averaged, run.tokenizer)
    return run.averaged


def forget_unread_tokens(network: CLIP, tokenize: Any) -> None:
    """Sets the vectors of tokens that no caption holds to zero: they are still as random as at the start."""
    read = torch.zeros(len(network.token_embedding.weight), dtype=torch.bool)
    read[tokenize(sentences()).unique()] = True
    with torch.no_grad():
        network.token_embedding.weight[~read.to(network.token_embedding.weight.device)] = 0


def build(architecture: ClipArchitecture) -> CLIP:
    """An untrained network."""
    from open_clip import CLIP

    return CLIP(**architecture.config()["model_cfg"])


def tokenizer(architecture: ClipArchitecture) -> Any:
    """Turns captions into tokens: a callable from list of str to int64 tensor (number of captions, context length)."""
    from open_clip import SimpleTokenizer

    return SimpleTokenizer(context_length=architecture.context_length)


def contrastive_loss(seen: Tensor, said: Tensor, scale: Tensor, same: Tensor) -> Tensor:
    """CLIP's symmetric cross-entropy, where a picture may have several captions: those that say the same.

    Args:
        seen, said: Embeddings of pictures and captions, (N, D), of length 1.
        scale: What cosines are multiplied by.
        same: bool (N, N): whose captions are equal; the diagonal is True.
    """
    logits = scale * seen @ said.T
    target = same / same.sum(dim=1, keepdim=True)
    return (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2


def normalised(pixels: Tensor) -> Tensor:
    """uint8 (N, H, W, 3) as the float32 (N, 3, H, W) that CLIP sees."""
    from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    mean, std = (255 * torch.tensor(x, device=pixels.device) for x in (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD))
    return ((pixels - mean) / std).permute(0, 3, 1, 2)  # in memory channels stay last: convolutions are faster so


def changed(images: Tensor, crop: float, rng: np.random.Generator) -> Tensor:
    """A random part of each picture at full size, half of them mirrored, lighter or darker.

    Args:
        images: (N, 3, H, W).
        crop: Smallest share of a side that is kept.
        rng: Decides.
    """
    count = len(images)
    kept = rng.uniform(crop, 1, (count, 2))
    shift = rng.uniform(-1, 1, (count, 2)) * (1 - kept)
    kept[:, 0] *= rng.choice([-1, 1], count)
    theta = np.zeros((count, 2, 3), dtype=np.float32)
    theta[:, [0, 1], [0, 1]] = kept
    theta[:, :, 2] = shift
    grid = functional.affine_grid(torch.from_numpy(theta).to(images), list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    light = torch.from_numpy(rng.normal(0, 0.15, (count, 1, 1, 1))).to(images)
    contrast = torch.from_numpy(rng.uniform(0.8, 1.2, (count, 1, 1, 1))).to(images)
    return (moved * contrast + light).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def zero_shot(network: CLIP, tokenize: Any, pictures: Captioned) -> float:
    """Fraction of the pictures of one thing whose nearest name, of all the world's, is one of its own.

    Returns:
        NaN where no picture shows one thing alone.
    """
    names = sorted({name for known in words().values() for name in known.names})
    device = next(network.parameters()).device
    single = [row for row, shown in enumerate(pictures.concepts) if len(shown) == 1]
    if not single:
        return float("nan")
    said = network.encode_text(tokenize([QUESTION.format(name) for name in names]).to(device), normalize=True)
    hits = 0
    for start in range(0, len(single), 256):
        rows = single[start : start + 256]
        seen = network.encode_image(normalised(torch.from_numpy(pictures.pixels[rows]).to(device)), normalize=True)
        nearest = (seen @ said.T).argmax(dim=1).tolist()
        hits += sum(names[k] in words()[pictures.concepts[r][0]].names for k, r in zip(nearest, rows, strict=True))
    return hits / len(single)
