"""Fitted methods from the folders that `Method.save` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from farther.errors import DataError
from farther.methods.base import METHODS, FitError, Method, state_digest
from farther.tables.arrays import read_arrays
from farther.tables.documents import read_json
from farther.tables.schema import Schema, check


class Described(Schema):
    """Fields and types of `method.json`.

    Args:
        name, params: The method.
        state: Fitted attributes that are no arrays, by name.
        not_applicable: Why the method does not apply; None where it was fitted.
        fixed_threshold: τ, where the method has a threshold of its own.
        computes: See `Method.computes`.
        digest: See `farther.methods.base.state_digest`.
    """

    format: Literal["farther.method"] = "farther.method"
    version: Literal[1] = 1
    name: str
    params: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] = Field(default_factory=dict)
    not_applicable: str | None = None
    fixed_threshold: float | None = None
    computes: bool = True
    digest: str | None = None


def load(path: str | Path) -> Method:
    """A fitted method from the folder that `save` wrote.

    Args:
        path: The folder, with `method.json` and `state.safetensors`.

    Raises:
        FitError: the folder says that the method does not apply, and why.
        DataError: a file is absent or damaged.
        ParameterError: the name or a parameter is not known here.
    """
    folder = Path(path)
    info = read_method(folder)
    if info.get("not_applicable"):
        raise FitError(f"{info['name']} does not apply: {info['not_applicable']}")
    arrays = read_arrays(folder / "state.safetensors")
    if info.get("digest") != state_digest(folder, info):
        problem = (
            "the fitted state or its parameters are not those that were written: delete the folder "
            "and fit again"
        )
        raise DataError(problem, file=folder / "method.json", field="digest")
    method = METHODS.create(info["name"], **info["params"])
    copies = {name: array.copy() for name, array in arrays.items()}
    vars(method).update({**info["state"], **copies, "loaded_from": folder / "method.json"})
    return method


def not_applicable(path: str | Path) -> str | None:
    """Why the method of a fitted folder does not apply, or None when it does.

    Args:
        path: The folder of a fitted method.

    Raises:
        DataError: the folder is absent or damaged.
    """
    return read_method(Path(path)).get("not_applicable")


def share_asked(state: Mapping[str, Any], of: Literal["detections", "images"]) -> float:
    """The share for which a method computes the passes that it reads beside the detections.

    Args:
        state: Fitted attributes that are no arrays: `state` in `method.json`.
        of: What it is a share of: the images are those with detections.

    Returns:
        That of the ID validation detections that `cascade` asks its second method about; 1 for
        other methods.
    """
    asked: Mapping[str, float] = state.get("asked_", {})
    return asked.get(of, 1.0)


def read_method(folder: Path) -> dict[str, Any]:
    """Contents of a fitted folder's `method.json`, checked.

    Raises:
        DataError: the file is absent, or not one that `save` writes.
    """
    info: dict[str, Any] = read_json(folder / "method.json")
    check(Described, info, folder / "method.json")
    return {"params": {}, "state": {}, **info}
