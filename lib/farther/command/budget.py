"""The options of a budget, which several subcommands take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from farther.command.project import Project, option

if TYPE_CHECKING:
    from farther.evaluation.choice import Budget


@dataclass(frozen=True)
class GivenBudget:
    """A budget as given on the command line; what is None is taken from section `deploy` of params.yaml.

    Limits that are given replace all limits of params.yaml.
    """

    max_misclassified: Annotated[float | None, option("SHARE", "Most unknown objects misclassified: 0.01 is 1%.")] = (
        None
    )
    max_false_alarms: Annotated[
        float | None, option("NUMBER", "Most detections flagged as unknown per 100 ID images.")
    ] = None
    max_recall_loss: Annotated[float | None, option("SHARE", "Most known objects lost: 0.01 is 1%.")] = None
    guarantee: Annotated[
        Literal["none", "conformal"] | None, option("", "conformal: in expectation, on new images like these.")
    ] = None
    choose_on: Annotated[str | None, option("SPLIT", "Choose on this OOD split; measure on the others.")] = None

    def budget(self, project: Project) -> Budget:
        """The budget.

        Raises:
            ParameterError: nothing is limited, or a value is wrong.
        """
        from farther.evaluation.choice import LIMITS, Budget
        from farther.registry import build

        given = {name: value for name, value in vars(self).items() if value is not None}
        default = project.section("deploy")
        if given.keys() & set(LIMITS.values()):
            default = {name: value for name, value in default.items() if name not in LIMITS.values()}
        return build(Budget, "budget", {**default, **given})

    @property
    def is_default(self) -> bool:
        """Whether nothing is given."""
        return self == GivenBudget()


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The subcommand with the options of `GivenBudget` in place of its parameter `budget`, which gets their values.

    @budget_options
    def choose(run: Annotated[str, argument(...)], budget: GivenBudget, json: Json = False) -> None: ...
    """
    hints = get_type_hints(GivenBudget, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(GivenBudget)
    ]
    annotations = get_type_hints(command, include_extras=True)
    given = inspect.signature(command)
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotations[name])
        for name, one in given.parameters.items()
        if name != "budget"
    ]
    place = list(given.parameters).index("budget")

    @functools.wraps(command)
    def with_options(**values: Any) -> Any:
        chosen = {field.name: values.pop(field.name) for field in fields(GivenBudget)}
        return command(budget=GivenBudget(**chosen), **values)

    merged = [*parameters[:place], *options, *parameters[place:]]
    with_options.__signature__ = given.replace(parameters=merged, return_annotation=annotations.get("return"))  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in merged}
    del with_options.__wrapped__
    return with_options
