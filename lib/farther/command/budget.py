"""The options of a budget, which several subcommands take.

Limits that are given replace all limits of section `deploy` of params.yaml; what is not given is
taken from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from farther.command.project import Project, option, splits

if TYPE_CHECKING:
    from farther.evaluation.deploy.results import Budget

MaxMisclassified = Annotated[
    float | None,
    option("SHARE", "Limit on the share of unknown objects misclassified: 0.01 is 1%."),
]
MaxFalseAlarms = Annotated[
    float | None, option("NUMBER", "Limit on detections flagged as unknown per 100 ID images.")
]
MaxRecallLoss = Annotated[
    float | None, option("SHARE", "Limit on the share of known objects lost: 0.01 is 1%.")
]
Guarantee = Annotated[
    Literal["none", "conformal"] | None,
    option("none|conformal", "conformal: limits hold in expectation on new images like these."),
]
ChooseOn = Annotated[
    str | None, option("SPLIT", "Choose on this OOD split; measure on the others.", splits)
]


def budget_of(project: Project, **given: Any) -> Budget:
    """The budget of section `deploy`, with what is given on the command line in its place.

    Args:
        project: The project.
        given: Values of `Budget`; None for what is not given.

    Raises:
        ParameterError: nothing is limited, or a value is wrong.
    """
    from farther.evaluation.deploy.results import LIMITS, Budget
    from farther.registry import build

    given = {name: value for name, value in given.items() if value is not None}
    default = project.section("deploy")
    if given.keys() & set(LIMITS.values()):
        default = {name: value for name, value in default.items() if name not in LIMITS.values()}
    return build(Budget, "budget", {**default, **given})
