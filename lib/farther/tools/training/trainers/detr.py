"""The trainer of RT-DETR and other detection transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.tables.files import digest
from farther.tools.training.detr_recipe import DetrRecipe
from farther.tools.training.recipe import Count
from farther.tools.training.trainers.base import Job, Task, Trained, count_parameters, register

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from farther.detectors.networks.detr import DetrBlueprint


@register("detr")
@dataclass(config=STRICT, kw_only=True)
class DetrJob(Job):
    """Trains a detection transformer of transformers: fine-tunes a checkpoint, or starts from nothing.

    Args:
        initial_weights: A checkpoint to fine-tune: a folder, a file or a model of the hub, as for the detector `detr`.
            Its configuration is taken over; what knows its classes (or another number of queries) starts anew.
        revision: Branch, tag or commit of a model on the hub.
        queries: Object queries, instead of the checkpoint's number. FMIYC took 100.
        network: For a network that starts from nothing: its configuration, as transformers' `config.json` holds it.
        processor: For such a network: what is done to images, as `preprocessor_config.json` holds it.
        recipe: How it is trained.

    Raises:
        ValueError: parameters of a checkpoint and of a network that starts from nothing are mixed, or neither is given.
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
        from farther.tools.training.detr import evaluate, train

        network, blueprint, origin = self._start(task.classes)
        network = network.to(task.device, memory_format=torch.channels_last)
        given = (network, blueprint, task.training, task.validation, self.recipe)
        trained = train(*given, task.state_file, task.log_file)
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
                "classes": list(task.classes),
                "network": blueprint.config,
                "processor": blueprint.processor,
            },
            sections={"Network": "network", "Images": "processor"},
            packages=("transformers",),
        )

    def _start(self, classes: tuple[str, ...]) -> tuple[PreTrainedModel, DetrBlueprint, str | None]:
        """The network to train, how it is built, and a name for the weights that it starts from."""
        import torch

        from farther.detectors.networks.detr import DetrBlueprint
        from farther.detectors.networks.detr_checkpoint import find_checkpoint, load_network
        from farther.tools.training.detr import untrained

        if self.initial_weights is None:
            blueprint = DetrBlueprint(self.network or {}, self.processor or {}, classes)
            return untrained(blueprint, self.recipe.seed), blueprint, None
        found = find_checkpoint(self.initial_weights, revision=self.revision)
        config = {**found.blueprint.config, **({} if self.queries is None else {"num_queries": self.queries})}
        blueprint = DetrBlueprint(config, found.blueprint.processor, classes)
        torch.manual_seed(self.recipe.seed)
        network = load_network(replace(found, blueprint=blueprint), tolerated="class heads")
        return network, blueprint, digest(*found.files)
