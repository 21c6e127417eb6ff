"""The trainer of RT-DETR and other detection transformers, and its hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther_training.recipe import Count, DetrRecipe
from farther_training.trainers import Job, Task, Trained, count_parameters, register

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from farther.detectors.networks.detr import DetrBlueprint


@register("detr")
@dataclass(config=STRICT, kw_only=True)
class DetrJob(Job):
    """Trains a detection transformer of the library transformers: fine-tunes a checkpoint, or starts from scratch.

    Args:
        initial_weights: A checkpoint to fine-tune: a folder, a file or a model of the hub, as for the detector `detr`.
            Its configuration is used; layers that depend on the classes or the number of queries start from scratch.
        revision: Branch, tag or commit of a model on the hub.
        queries: Number of object queries, instead of the checkpoint's. FMIYC used 100.
        network: For a network that starts from scratch: its configuration, as in transformers' `config.json`.
        processor: For such a network: the preprocessing, as in `preprocessor_config.json`.
        recipe: Hyperparameters.

    Raises:
        ValueError: parameters of a checkpoint and of a network that starts from scratch are mixed, or neither is given.
    """

    revision: str | None = None
    queries: Count | None = None
    network: dict[str, Any] | None = None
    processor: dict[str, Any] | None = None
    recipe: Annotated[DetrRecipe, Field(default_factory=DetrRecipe)]

    def __post_init__(self) -> None:
        anew = {name for name in ("network", "processor") if getattr(self, name) is not None}
        tuned = {name for name in ("initial_weights", "revision", "queries") if getattr(self, name) is not None}
        starts_anew = len(anew) == 2 and not tuned
        is_tuned = "initial_weights" in tuned and not anew
        if not starts_anew and not is_tuned:
            given = ", ".join(sorted(anew | tuned)) or "neither"
            advice = "'initial_weights' (with 'revision' and 'queries', if need be), or 'network' and 'processor'"
            raise ValueError(f"expected either {advice}; given: {given}")

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        import torch

        from farther.detectors.networks.detr import keep_exact
        from farther.detectors.networks.detr_checkpoint import find_checkpoint, load_network, save_checkpoint
        from farther_training.detr import evaluate, train

        network, blueprint, origin = self._start(task.training.classes)
        network = network.to(task.device, memory_format=torch.channels_last)
        trained = train(network, blueprint, task, self.recipe)
        save_checkpoint(self.weights, trained.state_dict(), blueprint, task.notes)
        written = load_network(find_checkpoint(self.weights)).to(task.device)
        keep_exact(written)
        kind = blueprint.config["model_type"]
        return Trained(
            evaluate=lambda samples: evaluate(written, blueprint, samples, self.recipe),
            parameters=count_parameters(written),
            origin=origin,
            kind=f"Detection transformer, `{kind}`",
            facts={
                "model_type": kind,
                "classes": list(task.training.classes),
                "network": blueprint.config,
                "processor": blueprint.processor,
            },
            sections={"Network": "network", "Images": "processor"},
            packages=("transformers",),
        )

    def _start(self, classes: tuple[str, ...]) -> tuple[PreTrainedModel, DetrBlueprint, str | None]:
        """The network to train, its configuration, and the digest of its initial weights."""
        import torch

        from farther.detectors.networks.detr import DetrBlueprint
        from farther.detectors.networks.detr_checkpoint import find_checkpoint, load_network
        from farther_training.detr import untrained

        if self.initial_weights is None:
            blueprint = DetrBlueprint(self.network or {}, self.processor or {}, classes)
            return untrained(blueprint, self.recipe.seed), blueprint, None
        found = find_checkpoint(self.initial_weights, revision=self.revision)
        config = {**found.blueprint.config, **({} if self.queries is None else {"num_queries": self.queries})}
        blueprint = DetrBlueprint(config, found.blueprint.processor, classes)
        torch.manual_seed(self.recipe.seed)
        network = load_network(replace(found, blueprint=blueprint), tolerated="class heads")
        return network, blueprint, digest(*found.files)
