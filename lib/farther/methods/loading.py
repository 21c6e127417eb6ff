"""Fitted methods from the folders that `Method.save` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from farther.errors import DataError, shorten
from farther.methods.base import METHODS, VERSION, FitError, Method, NoScoreError, state_digest
from farther.methods.trial import rows_like
from farther.tables.arrays import read_arrays
from farther.tables.documents import read_json
from farther.tables.schema import Schema, check


class _FittedOn(Schema):
    classes: list[str]
    background_index: int | None
    unknown_columns: list[int] = Field(default_factory=list)
    widths: dict[str, int] | None = None


class _State(Schema):
    fitted_on_: _FittedOn = Field(default=None)  # type: ignore[assignment]  # may be absent, but not null


class _Described(Schema):
    """Fields and types of `method.json`."""

    name: str
    params: dict[str, Any]
    state: _State
    not_applicable: str | None = None
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
    method = METHODS.create(info["name"], **info["params"])
    arrays = _arrays(folder / "state.safetensors")
    if info.get("digest") != state_digest(folder, info):
        problem = "the fitted state or its parameters are not those that were written: delete the folder and fit again"
        raise DataError(problem, file=folder / "method.json", field="digest")
    for attribute, value in [*info["state"].items(), *arrays.items()]:
        setattr(method, attribute, value.copy() if isinstance(value, np.ndarray) else value)
    setattr(method, "loaded_from", folder / "method.json")  # noqa: B010, a class attribute of those that are fitted
    _try(method, info["state"].get("fitted_on_"), folder)
    return method


def _try(method: Method, fitted_on: dict[str, Any] | None, folder: Path) -> None:
    """Refuses a state whose arrays have other shapes or types: it scores one row per class.

    A method's own code is what knows its state; it meets a wrong one with nearly any error.
    """
    if fitted_on is None:
        return
    try:
        with np.errstate(all="ignore"):
            method.score(rows_like(method.inputs, method.columns, fitted_on))
    except MemoryError:
        raise
    except (FitError, NoScoreError):  # it was not fitted to all that it needs, or such a row has no score
        return
    except Exception as error:
        problem = f"the fitted state does not fit {method.name}: {shorten(str(error))}; delete the folder and fit again"
        raise DataError(problem, file=folder / "method.json", field="state") from error


def not_applicable(path: str | Path) -> str | None:
    """Why the method of a fitted folder does not apply, or None when it does.

    Args:
        path: The folder of a fitted method.

    Raises:
        DataError: the folder is absent or damaged.
    """
    return read_method(Path(path)).get("not_applicable")


def read_method(folder: Path) -> dict[str, Any]:
    """Contents of a fitted folder's `method.json`, checked.

    Raises:
        DataError: the file is absent, or not one that `save` writes.
    """
    source = folder / "method.json"
    info = read_json(source)
    if not isinstance(info, dict) or info.get("format") != "farther.method":
        raise DataError("not the state of a method", file=source, field="format")
    if info.get("version") != VERSION:
        raise DataError(f"version {info.get('version')!r}, this farther reads {VERSION}", file=source, field="version")
    check(_Described, info, source)
    for field in info["state"]:
        if not field.endswith("_") or field.startswith("_"):
            raise DataError(f"{field!r} is not a name of fitted state", file=source, field="state")
    return info


def _arrays(file: Path) -> dict[str, np.ndarray]:
    arrays = read_arrays(file)
    for name in arrays:
        if not name.endswith("_") or name.startswith("_"):
            raise DataError(f"{name!r} is not a name of fitted state", file=file, field=name)
    return arrays
