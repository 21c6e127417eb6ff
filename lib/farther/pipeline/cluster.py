"""Calls a stage's function here, or on a machine of a Ray cluster (`evaluate.engine: ray`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.keyed import FORCE, is_forced
from farther.params import read_params
from farther.registry import STRICT, Parameters, build


@dataclass(config=STRICT, kw_only=True)
class Engine(Parameters):
    """Where runs are worked on: keys of the section `evaluate`; see `EvaluationSettings`."""

    engine: Literal["local", "ray"] = "local"
    memory: float = Field(default=4.0, gt=0)


def call(module: str, function: str, run: str) -> Any:
    """What a stage's function returns for a run; `evaluate.engine` says where it is called.

    Where it is called changes no result, so no stage depends on it.

    Args:
        module: The module, `farther.pipeline.score`.
        function: Name of the function; its one argument is the run.
        run: Name of the run.

    Raises:
        ParameterError: the section `evaluate` is wrong; or see
            `farther.images.ray.call_on_cluster`.
    """
    section = read_params().get("evaluate") or {}
    values = {key: section[key] for key in ("engine", "memory") if key in section}
    settings = build(Engine, "params.yaml: evaluate", values)
    if settings.engine == "ray":
        from farther.images.ray import call_on_cluster

        variables = {}
        if is_forced():
            variables[FORCE] = "1"
        return call_on_cluster(
            module, function, run, gigabytes=settings.memory, variables=variables
        )
    return getattr(import_module(module), function)(run)
