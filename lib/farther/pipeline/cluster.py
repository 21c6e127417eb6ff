"""Where the stages of a run work: here, or on a machine of a Ray cluster (`evaluate.engine: ray`)."""

from __future__ import annotations

from typing import Any

from farther.evaluation.settings import EvaluationSettings
from farther.params import section
from farther.registry import build


def call(module: str, function: str, run: str) -> Any:
    """What a stage's function returns for a run; `evaluate.engine` says where it is called.

    Where it is called changes no result, so no stage depends on it.

    Args:
        module: The module, `farther.pipeline.score`.
        function: Name of the function; its one argument is the run.
        run: Name of the run.

    Raises:
        ParameterError: the section `evaluate` is wrong; or see `farther.images.ray.call_on_cluster`.
    """
    settings = build(EvaluationSettings, "params.yaml: evaluate", section("evaluate"))
    if settings.engine == "ray":
        from farther.images.ray import call_on_cluster

        return call_on_cluster(module, function, run, gigabytes=settings.memory)

    from importlib import import_module

    return getattr(import_module(module), function)(run)
