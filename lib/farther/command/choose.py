"""`farther choose`: which method and thresholds to deploy for a budget."""

from __future__ import annotations

from typing import Annotated

from farther.command.budget import (
    ChooseOn,
    Guarantee,
    MaxFalseAlarms,
    MaxMisclassified,
    MaxRecallLoss,
    budget_of,
)
from farther.command.output import as_json, next_step
from farther.command.project import PARAMS, Json, OptionalRun, Params, Project, option
from farther.text.terminal import say


def choose(
    run: OptionalRun = None,
    max_misclassified: MaxMisclassified = None,
    max_false_alarms: MaxFalseAlarms = None,
    max_recall_loss: MaxRecallLoss = None,
    guarantee: Guarantee = None,
    choose_on: ChooseOn = None,
    method: Annotated[
        list[str] | None, option("METHOD", "Only this method; repeatable.", "methods")
    ] = None,
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Choose what to deploy within a budget: method, t* and τ.

    Thresholds are chosen on the ID validation split and on OOD images, and measured on the ID test
    split and on other OOD images: by cross-fitting on halves of the OOD splits, or by --choose-on.
    Of the methods that are not significantly worse than the best one, the cheapest is taken.

    Limits are shares: of ID images with a false alarm, of unknown objects, of known objects. Those
    that are given replace those in section 'deploy' of params.yaml.

    \b
    Examples:
      farther choose voc-yolov8
      farther choose voc-yolov8 --max-misclassified 0.01
      farther choose voc-yolov8 --max-false-alarms 0.02 --max-recall-loss 0.01
      farther choose voc-vos --max-false-alarms 0.02 --guarantee expected --json
    """
    from farther.command.deployment import deploy_choices, next_command, to_text

    project = Project(params)
    run = project.run(run)
    options = {
        "max_misclassified": max_misclassified,
        "max_false_alarms": max_false_alarms,
        "max_recall_loss": max_recall_loss,
        "guarantee": guarantee,
        "choose_on": choose_on,
    }
    choices = deploy_choices(project, run, budget_of(project, **options), method or ())
    if json:
        say(as_json(choices))
        return
    say(to_text(choices))
    command = next_command(project, choices, method or (), options)
    if command:
        next_step(command)
