"""The options of a budget, which several subcommands take.

A limit on the command line replaces all limits of section `deploy` of params.yaml; other values are
taken from there unless they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from farther.command.project import Project, option, splits

if TYPE_CHECKING:
    from farther.evaluation.deploy.results import Budget

MaxMisclassified = Annotated[
    float | None,
    option("SHARE", "Limit on the share of the unknown objects misclassified: 0.01 is 1%."),
]
MaxFalseAlarms = Annotated[
    float | None,
    option("SHARE", "Limit on the share of the ID images with a false alarm: 0.05 is 5 in 100."),
]
MaxRecallLoss = Annotated[
    float | None, option("RATE", "Limit on objects lost per known object: 0.01 is 1%.")
]
Guarantee = Annotated[
    Literal["confidence", "expected", "none"] | None,
    option(
        "confidence|expected|none",
        "What limits promise of new images like these: to hold with 95% confidence, the default; "
        "in expectation; or nothing.",
    ),
]
ChooseOn = Annotated[
    str | None, option("SPLIT", "Choose on this OOD split; measure on the others.", splits)
]


def budget_of(project: Project, **options: Any) -> Budget:
    """The budget of section `deploy`, with the options of the command line in its place.

    Args:
        project: The project.
        options: Values of `Budget`; None for options that were not given.

    Raises:
        ParameterError: nothing is limited, or a value is wrong.
    """
    from farther.evaluation.deploy.results import LIMITS, Budget
    from farther.naming.registry import build

    replacements = {name: value for name, value in options.items() if value is not None}
    values = dict(project.section("deploy"))
    limits = set(LIMITS.values())
    if not limits.isdisjoint(replacements):
        for name in limits:
            values.pop(name, None)
    values.update(replacements)
    source = "params.yaml: deploy"
    if replacements:
        source = ", ".join(f"--{name.replace('_', '-')}" for name in replacements)
    return build(Budget, source, values)
