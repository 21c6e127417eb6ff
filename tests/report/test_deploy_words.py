"""What to deploy of a run in words."""

from dataclasses import replace

from tests.evaluation.deployable import choose

from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
from farther.evaluation.deploy.results import DeployChoice, DeployChoices, MethodGain
from farther.report import deploy_words


def read_choices(tmp_path) -> DeployChoices:
    return DeployChoices.read(tmp_path / "artifacts/choices/net.json")


def with_alarms(choice: DeployChoice, **changes) -> DeployChoice:
    """The choice with another measured share of images with a false alarm."""
    alarms = replace(choice.measured["false_alarms"], **changes)
    return replace(choice, measured={**choice.measured, "false_alarms": alarms})


def test_a_limit_that_holds_only_where_the_setting_was_chosen_is_said_first(tmp_path):
    choose(tmp_path, max_false_alarms=0.25, choose_on="far")
    choices = read_choices(tmp_path)
    assert deploy_words.remarks(choices) == []  # in half of the images, but of four
    assert deploy_words.is_within(choices)
    beyond = replace(choices, choice=with_alarms(choices.choice, interval=(0.3, 0.7)))
    assert deploy_words.answer(beyond).startswith(
        "Over the limit on held-out images: 50.0% [30.0, 70.0] of the ID images with a false alarm "
        "(limit 25%). The setting is "
    )
    (advice,) = deploy_words.remarks(beyond)
    assert "Choose with a lower limit" in advice
    assert not deploy_words.is_within(beyond)
    assert deploy_words.next_budget(beyond) == {"max_false_alarms": 0.125}
    assert deploy_words.status(beyond.choice, beyond.budget) == "exceeded"


def test_the_gain_over_the_cheapest_method_stands_beside_the_false_alarms_of_both(tmp_path):
    choose(tmp_path, max_false_alarms=0.25)
    choices = read_choices(tmp_path)
    gain = MethodGain(method="two", than="one", axis="found", value=0.1, interval=(0.05, 0.2))
    methods = {
        "one": with_alarms(choices.methods["one"], value=0.06),
        "two": with_alarms(choices.methods["two"], value=0.148),
    }
    (reason, *_) = deploy_words.reasons(replace(choices, methods=methods, over_cheapest=gain))
    assert reason.endswith(
        "it finds +10.0 [+5.0, +20.0] points more of the unknown objects, "
        "with a false alarm in 14.8% of the ID images instead of 6.0%."
    )
    fewer_alarms = replace(gain, axis="false_alarms")
    (reason, *_) = deploy_words.reasons(
        replace(choices, methods=methods, over_cheapest=fewer_alarms)
    )
    assert reason.endswith("it alarms in +10.0 [+5.0, +20.0] points fewer of the ID images.")


def test_a_method_that_was_chosen_on_a_half_of_the_images_only_is_named(tmp_path):
    choose(tmp_path, max_false_alarms=0.25)
    choices = read_choices(tmp_path)
    first, second = choices.choice.folds
    own = replace(
        choices.choice,
        method="one",
        folds=(replace(first, method="one"), replace(second, method="one")),
    )
    assert deploy_words.remarks(replace(choices, choice=own, notes=[])) == []
    mixed = replace(own, folds=(replace(first, method="one"), replace(second, method="two")))
    assert deploy_words.remarks(replace(choices, choice=mixed, notes=[]), {"two": "Two"}) == [
        "Half of the OOD images by itself preferred Two, so this choice is uncertain."
    ]
    other = replace(
        own, folds=(replace(first, method="two"), replace(second, method="two", tau=0.0))
    )
    (remark,) = deploy_words.remarks(replace(choices, choice=other, notes=[]))
    assert remark.startswith("Each half of the OOD images by itself preferred two")


def test_what_a_limit_promises_is_said(tmp_path):
    choose(tmp_path, max_false_alarms=0.6, guarantee="confidence")
    choices = read_choices(tmp_path)
    assert (
        deploy_words.answer(choices)
        .split(": ", 1)[1]
        .startswith(
            "at most 60% of the ID images with a false alarm on new images like those it was "
            "chosen on, with 95% confidence. Measured"
        )
    )
    in_expectation = replace(choices.budget, guarantee="expected")
    assert "in expectation on new" in deploy_words.answer(replace(choices, budget=in_expectation))


def test_images_that_are_too_few_for_a_limit_are_the_first_sentence(tmp_path):
    choose(tmp_path, max_false_alarms=0.25, guarantee="confidence")
    choices = read_choices(tmp_path)
    (row,) = [row for row in deploy_words.axis_rows(choices) if row["Limit"]]
    assert row[deploy_words.WHERE_CHOSEN] == "yes"  # nothing is flagged
    assert deploy_words.answer(choices).startswith(
        "4 ID validation images cannot show a limit of 0.25: 11 are needed; 0.53 is the smallest "
        "that they can show. Deploy "
    )


def test_the_parts_of_proposals_are_said(tmp_path):
    choose(tmp_path, max_false_alarms=0.25)
    choices = read_choices(tmp_path)
    measured = dict(choices.choice.measured)
    measured["found_by_proposals"] = replace(measured["found"], value=0.111)
    measured["alarms_of_proposals"] = replace(measured["false_alarms"], value=0.012)
    both = replace(choices.choice, alarms="both", source="rpn", objectness=0.75, measured=measured)
    text = deploy_words.answer(replace(choices, choice=both))
    assert ", and proposals of rpn above 0.75 called unknown: at most 25%" in text
    assert "of the unknown objects found (11.1% by proposals)" in text
    assert "of the ID images with a false alarm (1.2% by proposals)" in text
    alone = replace(both, alarms="proposals", tau=NOTHING_FLAGGED)
    text = deploy_words.answer(replace(choices, choice=alone))
    assert "Deploy proposals alone: t* = 0.5, nothing flagged, proposals of rpn above" in text
    cheapest = replace(choices, choice=alone, cheapest=alone.method, passed_over=None)
    (reason,) = deploy_words.reasons(replace(cheapest, over_cheapest=None))
    assert reason == "Where they were chosen, no method's scores find more within the limits."


def test_labels_that_exceed_a_limit_by_themselves_are_said(tmp_path):
    choose(tmp_path, max_misclassified=0.1, max_false_alarms=0, choose_on="far")
    choices = read_choices(tmp_path)
    labelled = replace(choices.choice, tau=NOTHING_FLAGGED, reached=False)
    text = deploy_words.answer(replace(choices, choice=labelled))
    assert "The closest setting is one with t* = " in text
    assert "nothing flagged but what the detector labels as unknown." in text
    silent = with_alarms(labelled, value=0.0)
    text = deploy_words.answer(replace(choices, choice=silent))
    assert "The closest setting within at most 0% of the ID images with a false alarm is" in text
    assert "and nothing flagged. Measured" in text
