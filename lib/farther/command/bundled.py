"""What `farther bundle` puts into a bundle: thresholds, chosen or by hand; and what it prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import to_jsonable_python

from farther.command.deployment import deploy_choices
from farther.command.project import Project
from farther.detectors.proposal_sources import network_source
from farther.errors import ParameterError
from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
from farther.evaluation.deploy.results import Budget
from farther.evaluation.files import RunFiles
from farther.evaluation.settings import read_settings
from farther.evaluation.threshold import read_threshold
from farther.monitor import Bundle, Chosen, ProposalChoice
from farther.report.deploy_words import PROPOSALS_ALONE, is_within
from farther.text.terminal import counted, say


def describe(bundle: Bundle, run: str, out: str, *, onnx: bool) -> None:
    """Prints what a bundle holds, and its metrics on ID images."""
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
class ThresholdsByHand:
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


def set_by_hand(
    project: Project, run: str, by_hand: ThresholdsByHand, source: str | None
) -> Chosen:
    """Thresholds by hand, after `ThresholdsByHand.checked_method`.

    Args:
        project, run: The project and the run.
        by_hand: The thresholds.
        source: Name of the source of proposals; None where none are called unknown.
    """
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


def chosen_for(
    project: Project, run: str, budget: Budget, method: str | None, source: str | None
) -> tuple[str, Chosen]:
    """The method and thresholds that `farther choose` prints, with their metrics.

    Args:
        project, run: The project and the run.
        budget: The limits.
        method: The only method to choose from; None for all.
        source: Name of the source of proposals; the network's first when None.
    """
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
