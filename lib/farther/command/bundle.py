"""`farther bundle`: a method of a run with its detector, for where it is deployed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.budget import (
    ChooseOn,
    Guarantee,
    MaxFalseAlarms,
    MaxMisclassified,
    MaxRecallLoss,
    budget_of,
)
from farther.command.output import next_step
from farther.command.project import PARAMS, Params, Project, argument, option
from farther.errors import ParameterError
from farther.text.terminal import counted, say, working

if TYPE_CHECKING:
    from farther.evaluation.deploy.results import Budget
    from farther.monitor import Bundle, Chosen


def _names(project: Project, words: set[str]) -> Iterable[str]:
    """Names that may come next: runs, and methods once a run is named or where there is one."""
    runs = project.section("detectors")
    names: list[str] = []
    if words.isdisjoint(runs):
        names += runs
    if len(runs) == 1 or not words.isdisjoint(runs):
        names += project.section("methods")
    return names


def bundle(
    names_and_out: Annotated[
        list[str],
        argument(
            "[RUN] [METHOD] OUT",
            "A run that was evaluated, by default the only one; one of its methods, by default the "
            "one that `farther choose` prints; and the folder to write.",
            _names,
        ),
    ],
    method: Annotated[
        str | None, option("METHOD", "The same as METHOD among the arguments.", "methods")
    ] = None,
    max_misclassified: MaxMisclassified = None,
    max_false_alarms: MaxFalseAlarms = None,
    max_recall_loss: MaxRecallLoss = None,
    guarantee: Guarantee = None,
    choose_on: ChooseOn = None,
    reference_checkpoint: Annotated[
        bool,
        typer.Option(
            "--reference-checkpoint", help="Refer to the checkpoint instead of copying it."
        ),
    ] = False,
    proposals: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Source of the proposals that share the limit; by default the network's first.",
        ),
    ] = None,
    threshold: Annotated[
        float | None, option("T", "t* of METHOD by hand, with --tau: a confidence from 0 to 1.")
    ] = None,
    tau: Annotated[
        float | None, option("T", "τ of METHOD by hand: detections with a lower score are flagged.")
    ] = None,
    objectness: Annotated[
        float | None,
        option("O", "With --tau: proposals of --proposals above it are called unknown."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write detector and method as an ONNX graph.")
    ] = False,
    params: Params = PARAMS,
) -> None:
    """Write a detector and a method as one folder to deploy.

    The folder holds the fitted method, the thresholds, calibrators where the run has them, the
    checkpoint, and what validation showed; `farther.Monitor.load` runs it. An earlier bundle there
    is replaced. Nothing is fitted.

    Without METHOD, or with a limit, thresholds and proposals are those that `farther choose`
    prints. With METHOD alone, thresholds are those of the pipeline, and no proposal is called
    unknown. With METHOD and --tau they are set by hand, which promises nothing: the report's page
    Deploy shows what they find and cost, and gives the command.

    \b
    Examples:
      farther bundle voc-vos knn deployed
      farther bundle voc-vos deployed --max-false-alarms 0.02
      farther bundle deployed --method knn    # in a project with one run
      farther bundle voc-vos knn deployed --reference-checkpoint
      farther bundle voc-yolov8 deployed --proposals feature_map
      farther bundle voc-vos knn deployed --threshold 0.6 --tau -0.9
      farther bundle voc-vos knn deployed --onnx
    """
    with working("starting"):  # which imports much
        from farther.evaluation.files import RunFiles
        from farther.images.plan import StreamParams
        from farther.monitor import Bundle, BundleSource, write_bundle
        from farther.naming.registry import build
        from farther.scoring.entries import read_entry

    project = Project(params)
    run, method, out = _arguments(project, names_and_out, method)
    entry = project.section("detectors")[run]
    methods = project.section("methods")
    limits = {
        "max_misclassified": max_misclassified,
        "max_false_alarms": max_false_alarms,
        "max_recall_loss": max_recall_loss,
        "guarantee": guarantee,
        "choose_on": choose_on,
    }
    chosen = None
    by_hand = _ByHand(threshold, tau, objectness)
    if by_hand.is_given:
        given_limits = [name for name, value in limits.items() if value is not None]
        method = by_hand.checked_method(method, proposals, given_limits)
        chosen = _set_by_hand(project, run, by_hand, proposals)
    elif method is None or any(value is not None for value in limits.values()):
        with working("choosing thresholds"):
            budget = budget_of(project, **limits)
            method, chosen = _chosen(project, run, budget, method, proposals)
    elif proposals is not None:
        raise ParameterError(
            f"--proposals {proposals}: proposals share a limit on false alarms, and {method} alone "
            "has the thresholds of the pipeline: add --max-false-alarms 0.05, or leave out METHOD"
        )

    method_entry = read_entry(method, methods[method] or {}, methods)
    inference = build(StreamParams, "params.yaml: inference", project.section("inference"))
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    source = BundleSource(files, entry, method_entry, inference, chosen, project.encoder)
    with working(f"writing {out}"):
        write_bundle(source, out, copy=not reference_checkpoint, onnx=onnx)
        bundle = Bundle.load(out)
    _report(bundle, run, out, onnx=onnx)
    next_step(f"farther predict {shlex.quote(out)} IMAGES")


def _arguments(
    project: Project, words: Sequence[str], method: str | None
) -> tuple[str, str | None, str]:
    """Run, method and folder.

    Args:
        project: The project, whose only run may be left out.
        words: The arguments: [RUN] [METHOD] OUT.
        method: The option --method.

    Raises:
        ParameterError: a name is unknown, the run is left out although there are several, or the
            number of arguments is wrong.
    """
    *names, out = words
    runs = project.section("detectors")
    run = None
    if len(names) == 2 or (names and (names[0] in runs or len(runs) != 1 or method is not None)):
        run = names.pop(0)
    is_folder = Path(out).exists()
    if not names and not is_folder and (out in runs or out in project.section("methods")):
        raise ParameterError(
            f"OUT, the folder to write, is missing after {out!r}. If that is the folder, write "
            f"./{out}"
        )
    run = project.run(run)
    if len(names) > 1 or (names and method is not None):
        raise ParameterError(
            f"expected RUN, METHOD and OUT, found {len(words)} arguments"
            + (" and --method" if method is not None else "")
        )
    if names:
        method = names[0]
    if method is not None:
        method = project.method(method)
    return run, method, out


def _report(bundle: Bundle, run: str, out: str, *, onnx: bool) -> None:
    """Prints what a bundle holds, and its metrics on ID images."""
    from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
    from farther.report.deploy_words import PROPOSALS_ALONE

    info = bundle.info
    validation = bundle.validation
    proposals = info.proposals
    title = info.method.title
    tau = f"τ {info.tau:.4g}"
    if info.tau == NOTHING_FLAGGED:
        tau = "nothing flagged"
        if proposals is not None:
            title = PROPOSALS_ALONE
    say(f"Written: {out} ({run}, {title}, t* {info.operating:.4g}, {tau})")
    unknown = f"{validation.unknown} of {validation.detections} detections as unknown"
    text = (
        f"Of {validation.images} ID validation images, {validation.alarmed} raise a false alarm; "
        f"it flags {unknown}"
    )
    self_aware = bundle.self_aware
    if self_aware is not None and self_aware.image_threshold is not None:
        text += (
            f" and rejects {counted(validation.rejected, 'image')}, "
            f"whose uncertainty is above {self_aware.image_threshold:.3g}"
        )
    say(f"{text}.")
    if proposals is None:
        return
    text = (
        f"Within its limit the bundle also reports boxes that no detection covers (proposals, "
        f"{proposals.source}, objectness above {proposals.threshold:.5g})."
    )
    if title == PROPOSALS_ALONE:
        text += f" Scores are those of {info.method.title}, and flag no detection."
    if onnx and proposals.not_in_graphs:
        text += f" The ONNX graph gives none: {proposals.not_in_graphs}."
    say(text)


@dataclass(frozen=True)
class _ByHand:
    """The options of thresholds that are set by hand; None for those that were not given."""

    threshold: float | None
    tau: float | None
    objectness: float | None

    @property
    def is_given(self) -> bool:
        """Whether there is any."""
        return any(value is not None for value in vars(self).values())

    def checked_method(
        self, method: str | None, proposals: str | None, limits: Sequence[str]
    ) -> str:
        """The method that they are of, after a check that they are complete.

        Args:
            method: METHOD, if it was given.
            proposals: --proposals, if it was given.
            limits: Names of the options of a budget that were given.

        Raises:
            ParameterError: they contradict a limit, or one is missing or wrong.
        """
        if limits:
            option_name = f"--{limits[0].replace('_', '-')}"
            raise ParameterError(
                f"{option_name} chooses thresholds, and --tau sets them by hand: give one of them"
            )
        if method is None or self.tau is None:
            raise ParameterError(
                "thresholds by hand are those of one method: name METHOD, and give --tau"
            )
        if not math.isfinite(self.tau):
            raise ParameterError(f"--tau: expected a number, found {self.tau:g}")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ParameterError(
                f"--threshold: expected a confidence from 0 to 1, found {self.threshold:g}"
            )
        if (proposals is None) != (self.objectness is None):
            raise ParameterError(
                "proposals by hand need their source and their threshold: give both --proposals "
                "and --objectness"
            )
        return method


def _set_by_hand(project: Project, run: str, by_hand: _ByHand, source: str | None) -> Chosen:
    """Thresholds by hand, after `_ByHand.checked_method`.

    Args:
        project, run: The project and the run.
        by_hand: The thresholds.
        source: Name of the source of proposals; None where none are called unknown.
    """
    from farther.detectors.proposal_sources import network_source
    from farther.evaluation.files import RunFiles
    from farther.evaluation.settings import read_settings
    from farther.evaluation.threshold import read_threshold
    from farther.monitor import Chosen, ProposalChoice

    entry = project.section("detectors")[run]
    operating = by_hand.threshold
    if operating is None:
        files = RunFiles(run, entry["benchmark"], project.artifacts)
        operating = read_threshold(files.threshold)
    proposals = None
    if source is not None and by_hand.objectness is not None:
        source = network_source(run, entry.get("proposals"), source)
        settings = read_settings(project.section("evaluate"))
        proposals = ProposalChoice(source or "", by_hand.objectness, settings.iou)
    return Chosen(operating, by_hand.tau or 0.0, proposals=proposals)


def _chosen(
    project: Project, run: str, budget: Budget, method: str | None, source: str | None
) -> tuple[str, Chosen]:
    """The method and thresholds that `farther choose` prints, with their metrics.

    Args:
        project, run: The project and the run.
        budget: The limits.
        method: The only method to choose from; None for all.
        source: Name of the source of proposals; the network's first when None.
    """
    from pydantic_core import to_jsonable_python

    from farther.command.choose import deploy_choices
    from farther.evaluation.settings import read_settings
    from farther.monitor import Chosen, ProposalChoice
    from farther.report.deploy_words import is_within

    methods = [] if method is None else [method]
    choices = deploy_choices(project, run, budget, methods, source)
    choice = choices.choice
    if choice is None:
        raise ParameterError(f"{run}: nothing can be chosen: {' '.join(choices.notes)}")
    if choices.too_few:
        say(choices.too_few)
    if not choice.reached:
        say("No setting keeps the limits: the closest one is bundled; see `farther choose`.")
    elif not is_within(choices):
        say("The setting exceeds a limit on held-out images; see `farther choose`.")

    proposals = None
    if choice.source is not None and choice.objectness is not None:
        settings = read_settings(project.section("evaluate"))
        proposals = ProposalChoice(choice.source, choice.objectness, settings.iou)
    thresholds = Chosen(
        choice.operating,
        choice.tau,
        to_jsonable_python(choices.budget),
        to_jsonable_python(choice.measured),
        proposals,
    )
    return choice.method, thresholds
