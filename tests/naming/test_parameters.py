"""Values of parameters: each has the type that its field declares, in all classes of parameters."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
import pytest
from pydantic.dataclasses import dataclass
from tests.support.described import classes_of_sections

from farther import methods
from farther.datasets.base import FORMATS
from farther.derived import cutouts
from farther.derived.base import KINDS
from farther.detectors import base as detectors
from farther.detectors import passes, proposal_sources
from farther.errors import ParameterError
from farther.evaluation.settings import EvaluationSettings, read_settings
from farther.methods.base import METHODS
from farther.metrics.self_awareness import calibration
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.metrics.user_defined import METRICS
from farther.naming.registry import STRICT, Parameters, build
from farther_demo import DemoWorld

REGISTRIES = (
    METHODS,
    FORMATS,
    detectors.registry,
    passes.PASSES,
    proposal_sources.SOURCES,
    KINDS,
    cutouts.SOURCES,
    METRICS,
)


def classes_of_parameters() -> dict[str, type]:
    """All classes that params.yaml can name or that read a section, by their names in messages."""
    classes = {"section demo": DemoWorld}
    for registry in REGISTRIES:
        for name in registry.names():
            classes[f"{registry.kind} {name}"] = registry.get(name)
    for cls, section in classes_of_sections().items():
        if not inspect.isabstract(cls):
            classes[f"params.yaml: {section}: {cls.__name__}"] = cls
    return classes


CLASSES = classes_of_parameters()


def plain_kinds(hint: Any) -> Iterator[type]:
    """The kinds of values that a field takes, without those in lists and mappings."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from plain_kinds(get_args(hint)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(hint):
            yield from plain_kinds(part)
    elif isinstance(hint, type):
        yield hint


def items_of_lists(hint: Any) -> Iterator[Any]:
    """The hints of the items of the lists that a field takes."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from items_of_lists(get_args(hint)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(hint):
            yield from items_of_lists(part)
    elif origin in (tuple, list):
        yield get_args(hint)[0]


def fields_of(cls: type) -> dict[str, Any]:
    """The type hint of each parameter."""
    fields = cls.__pydantic_fields__  # type: ignore[attr-defined]
    return {name: info.annotation for name, info in fields.items() if info.init is not False}


def are_numbers(hint: Any) -> bool:
    kinds = set(plain_kinds(hint))
    return bool(kinds & {int, float}) and bool not in kinds


#: Classes of entries that have the parameters of another class beside their own.
TAKE_ANY = {"params.yaml: detectors: RunEntry"}

NUMBERS = [
    (what, name)
    for what, cls in CLASSES.items()
    for name, hint in fields_of(cls).items()
    if are_numbers(hint)
]
LISTS = [
    (what, name)
    for what, cls in CLASSES.items()
    for name, hint in fields_of(cls).items()
    if any(are_numbers(item) for item in items_of_lists(hint))
]
BOOLEANS = [
    (what, name)
    for what, cls in CLASSES.items()
    for name, hint in fields_of(cls).items()
    if bool in plain_kinds(hint)
]


def refusal(what: str, name: str, value: Any) -> str:
    with pytest.raises(ParameterError) as caught:
        build(CLASSES[what], what, {name: value})
    return str(caught.value)


def test_classes_of_all_kinds_are_asked() -> None:
    asked = {what.split(" ")[0] for what, _ in NUMBERS}
    assert {"method", "detector", "dataset", "kind", "source", "params.yaml:", "section"} <= asked
    assert len(NUMBERS) > 200


@pytest.mark.parametrize("what, name", NUMBERS)
def test_a_boolean_is_not_a_number(what: str, name: str) -> None:
    for boolean in (True, np.bool_(True)):
        lines = refusal(what, name, boolean).splitlines()
        assert any((what in line and f"{name}'" in line) or f"'{name}." in line for line in lines)
        assert any("True" in line for line in lines)


@pytest.mark.parametrize("what, name", NUMBERS)
def test_a_text_is_not_a_number_nor_is_what_is_not_finite(what: str, name: str) -> None:
    for value in ("10", float("nan"), float("inf")):
        cls = CLASSES[what]
        if isinstance(value, str) and str in plain_kinds(fields_of(cls)[name]):
            continue
        assert f"'{name}" in refusal(what, name, value)


@pytest.mark.parametrize("what, name", LISTS)
def test_booleans_in_lists_are_not_numbers(what: str, name: str) -> None:
    message = refusal(what, name, [True, True])
    assert f"'{name}." in message
    assert "found True" in message


@pytest.mark.parametrize("what, name", BOOLEANS)
def test_numbers_and_words_are_not_booleans(what: str, name: str) -> None:
    for value in (1, 0, "yes", "true"):
        assert f"'{name}" in refusal(what, name, value)


@pytest.mark.parametrize("what, name", NUMBERS)
def test_a_class_that_is_called_refuses_them_under_its_own_name(what: str, name: str) -> None:
    cls = CLASSES[what]
    with pytest.raises(ParameterError) as caught:
        cls(**{name: True})
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{cls.__name__}: ") for line in lines)
    assert any(f"'{name}" in line and "True" in line for line in lines)


@pytest.mark.parametrize("what", sorted(set(CLASSES) - TAKE_ANY))
def test_a_class_that_is_called_refuses_unknown_parameters(what: str) -> None:
    cls = CLASSES[what]
    with pytest.raises(ParameterError, match=f"{cls.__name__}: unknown parameter 'no_such'"):
        cls(no_such=1)


def test_a_value_without_a_name_is_answered_with_the_names() -> None:
    with pytest.raises(
        ParameterError, match=r"KNN: 5 has no name\. Write parameters as k=…, index="
    ):
        METHODS.get("knn")(5)


@pytest.mark.parametrize(
    "cls, values, message",
    [
        (calibration.Linear, {"slope": True, "intercept": 0.0}, "Linear: parameter 'slope': "),
        (calibration.Linear, {"slope": 1.0}, "Linear: parameter 'intercept' is missing"),
        (calibration.Polyline, {"x": [0, 1], "y": [0]}, "x and y have equally many values"),
        (calibration.Polyline, {"x": [0, "a"], "y": [0, 1]}, "Polyline: parameter 'x': "),
        (calibration.StepFunction, {"edges": [0], "values": [0]}, "one value more than edges"),
        (calibration.Logistic, {"slope": "1", "intercept": 0}, "Logistic: parameter 'slope': "),
        (
            SelfAwareDetector,
            {"confidence_thresholds": {"cat": True}},
            "SelfAwareDetector: parameter 'confidence_thresholds.cat': ",
        ),
    ],
)
def test_calibrators_and_thresholds_of_wrong_values_are_refused(
    cls: type, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        cls(**values)


def test_a_path_that_no_file_system_has_is_refused_by_a_class_that_is_called() -> None:
    with pytest.raises(ParameterError, match="Labels: parameter 'file': the path is too long"):

        @dataclass(config=STRICT, kw_only=True)
        class Labels(Parameters):
            file: Path

        Labels(file="a" * 300)


def test_numbers_inside_of_other_classes_are_checked_too() -> None:
    for section in ({"proposals": {"rates": [True]}}, {"self_awareness": {"iou": True}}):
        with pytest.raises(ParameterError, match=r"params.yaml: evaluate.*found True"):
            read_settings(section)


def test_what_is_meant_by_a_text_that_is_a_number_is_said() -> None:
    with pytest.raises(ParameterError, match=r"found '1e-3': write 0.001$"):
        methods.create("energy", temperature="1e-3")


def test_integers_are_numbers_and_scalars_of_numpy_are_those_of_python() -> None:
    settings = EvaluationSettings(iou=1, kept=[np.float32(0.5)], seed=np.int64(3))
    assert (settings.iou, settings.kept, settings.seed) == (1.0, (0.5,), 3)
    assert type(settings.seed) is int


def test_a_fraction_is_not_an_integer() -> None:
    with pytest.raises(ParameterError, match=r"found 2\.5"):
        methods.create("knn", k=2.5)


def test_classes_in_extensions_refuse_them_too() -> None:
    @dataclass(config=STRICT, kw_only=True)
    class Mine(Parameters):
        weights: dict[str, float]
        sizes: tuple[int, int] | None = None

    assert build(Mine, "mine", {"weights": {"a": 1}}).weights == {"a": 1.0}
    for params in ({"weights": {"a": True}}, {"weights": {}, "sizes": [1, True]}):
        with pytest.raises(ParameterError, match="found True"):
            build(Mine, "mine", params)
