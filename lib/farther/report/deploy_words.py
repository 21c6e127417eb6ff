"""What to deploy of a run in words and rows, for the report and for `farther choose`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
from farther.evaluation.deploy.results import (
    LIMITS,
    Budget,
    DeployChoice,
    DeployChoices,
    DeploySetting,
    MeasuredCost,
    MethodGain,
)
from farther.metrics.statistics.risk_control import ROUNDING
from farther.report.listing import ABSENT


@dataclass(frozen=True)
class AxisWords:
    """An axis in words.

    Args:
        title: In rows of tables.
        unit: After a number; "" for an axis that no budget limits.
        head: Heading of a column; "" for an axis without one.
        short: The same in a terminal.
    """

    title: str
    unit: str = ""
    head: str = ""
    short: str = ""


WORDS = {
    "misclassified": AxisWords(
        title="unknown objects misclassified",
        unit="of the unknown objects misclassified",
        head="misclassified",
        short="misclassified",
    ),
    "found": AxisWords(title="unknown objects found", head="found", short="found"),
    "found_by_proposals": AxisWords(title="unknown objects found by proposals"),
    "missed": AxisWords(title="unknown objects missed"),
    "false_alarms": AxisWords(
        title="ID images with a false alarm",
        unit="of the ID images with a false alarm",
        head="false alarms",
        short="alarms",
    ),
    "alarms_of_proposals": AxisWords(title="ID images with an alarm by proposals"),
    "alarms_per_image": AxisWords(title="false alarms per ID image"),
    "recall_lost": AxisWords(
        title="known objects lost",
        unit="of the known objects lost",
        head="known lost",
        short="lost",
    ),
    "map50_lost": AxisWords(title="mAP50 lost"),
}

#: What a setting within a limit does.
KEPT = {
    "misclassified": "misclassifies {limit} of the unknown objects",
    "false_alarms": "raises a false alarm in {limit} of the ID images",
    "recall_lost": "loses {limit} of the known objects",
}

#: In the place of a method where nothing is flagged and proposals are called unknown.
PROPOSALS_ALONE = "proposals alone"

#: Words of `DeployChoice.status`.
STATUS = {"met": "yes", "exceeded": "no", "open": "undecided"}

#: Headings: whether limits hold on the images that were chosen on, and on held-out ones.
WHERE_CHOSEN, HELD_OUT = "Met where chosen", "Met on held-out"

#: Order in which a limit that can be met alone is suggested.
SUGGESTED = ("false_alarms", "recall_lost", "misclassified")


def number(axis: str, value: float | None) -> str:
    """A value of an axis as it is printed: per cent, or false alarms per image.

    >>> number("false_alarms", 0.0123), number("alarms_per_image", 0.0204), number("found", None)
    ('1.2%', '0.020', '—')
    """
    if value is None:
        return ABSENT
    if axis == "alarms_per_image":
        return f"{value:.3f}"
    return f"{100 * value:.1f}%"


def between(axis: str, cost: MeasuredCost) -> str:
    """An interval; "" where there is none.

    >>> between("found", MeasuredCost(value=0.42, interval=(0.38, 0.46)))
    '[38.0, 46.0]'
    """
    if cost.interval is None:
        return ""
    low, high = cost.interval
    return f"[{number(axis, low).rstrip('%')}, {number(axis, high).rstrip('%')}]"


def limit(axis: str, maximum: float) -> str:
    """A limit in words.

    >>> limit("false_alarms", 0.02)
    'at most 2% of the ID images with a false alarm'
    """
    return f"at most {100 * maximum:g}% {WORDS[axis].unit}"


def named_limit(axis: str, budget: Budget) -> str:
    """A limit as the name of a row.

    >>> named_limit("false_alarms", Budget(max_false_alarms=0.02))
    'alarms 2%'
    """
    return f"{WORDS[axis].short} {100 * budget.limits[axis]:g}%"


def limits_in_words(budget: Budget) -> dict[str, str]:
    """Each limit of a budget in words, by axis."""
    return {axis: limit(axis, maximum) for axis, maximum in budget.limits.items()}


def kept_limits(budget: Budget) -> str:
    """All limits of a budget as what a setting does.

    >>> kept_limits(Budget(max_false_alarms=0.02, max_recall_loss=0.01))
    'raises a false alarm in at most 2% of the ID images and loses at most 1% of the known objects'
    """
    texts = []
    for axis, maximum in budget.limits.items():
        texts.append(KEPT[axis].format(limit=f"at most {100 * maximum:g}%"))
    return enumerated(texts)


def promise(budget: Budget) -> str:
    """What the limits of a budget promise, after them.

    >>> promise(Budget(max_false_alarms=0.02))
    'on new images like those it was chosen on, with 95% confidence'
    """
    if budget.guarantee == "confidence":
        confidence = f"{100 * budget.confidence:g}% confidence"
        return f"on new images like those it was chosen on, with {confidence}"
    if budget.guarantee == "expected":
        return "in expectation on new images like those it was chosen on"
    return "where it was chosen"


def limits(budget: Budget) -> str:
    """All limits of a budget in one line."""
    return enumerated(list(limits_in_words(budget).values()))


def held_out(choices: DeployChoices) -> str:
    """A sentence on the images that were chosen on, and those that were measured on."""
    chosen, measured = choices.id_splits
    split = choices.budget.choose_on
    if split:
        ood = f"chosen on {split} and measured on the other OOD splits"
    else:
        ood = (
            "chosen on one half of the images of each OOD split and measured on the other, "
            "and vice versa"
        )
    return (
        "For false alarms and known objects, thresholds are chosen on "
        f"ID split {chosen} and measured on {measured}; for unknown objects, {ood}."
    )


def tau(choice: DeploySetting) -> str:
    """τ as it is printed."""
    if choice.tau == NOTHING_FLAGGED:
        return "none flagged"
    return f"{choice.tau:.5g}"


def called(choice: DeploySetting) -> str:
    """The proposals that are called unknown, as they are printed; "" for none."""
    if choice.objectness is None:
        return ""
    return f"{choice.source} above {choice.objectness:.5g}"


def answer(choices: DeployChoices, titles: Mapping[str, str] | None = None) -> str:
    """The answer in words: what to deploy, or that no setting meets the budget.

    Where a limit is exceeded on held-out images, its first sentence says so.

    Args:
        choices: The run's choices.
        titles: Of the methods, for readers.
    """
    choice = choices.choice
    if choice is None:
        return " ".join(choices.notes)
    budget = choices.budget
    setting = setting_in_words(choice, titles or {})
    if choice.reached:
        first = f"{choices.too_few} " if choices.too_few else ""
        kept = f"{setting}: {limits(budget)} {promise(budget)}. {_measured(choice)}"
        exceeded = _exceeded(choice, budget)
        if not exceeded:
            return f"{first}Deploy {kept}"
        return (
            f"{first}Over the limit on held-out images: {enumerated(exceeded)}. "
            f"The setting is {kept}"
        )

    further_limits = limits_in_words(budget)
    further_limits.pop("misclassified", None)
    within = ""
    if further_limits and not _flags_by_label(choice):
        within = f" within {enumerated(list(further_limits.values()))}"
    first = f"{choices.too_few} " if choices.too_few else ""
    return (
        f"{first}No setting keeps {limits(budget)} {promise(budget)}. The closest setting{within} "
        f"is {setting}. {_measured(choice)}"
    )


def _exceeded(choice: DeployChoice, budget: Budget) -> list[str]:
    """The values on held-out images whose whole interval is above their limit, in words."""
    exceeded = []
    for axis, maximum in budget.limits.items():
        if choice.status(axis, maximum) == "exceeded":
            value = with_interval(axis, choice.measured[axis])
            exceeded.append(f"{value} {WORDS[axis].unit} (limit {100 * maximum:g}%)")
    return exceeded


def status(choice: DeployChoice, budget: Budget) -> str:
    """Whether all limits are met on held-out images; see `DeployChoice.status`."""
    statuses = set()
    for axis, maximum in budget.limits.items():
        statuses.add(choice.status(axis, maximum))
    for worst in ("exceeded", "open"):
        if worst in statuses:
            return worst
    return "met"


def is_within(choices: DeployChoices) -> bool:
    """Whether a setting was chosen that meets the budget, and does not exceed it elsewhere."""
    choice = choices.choice
    return choice is not None and choice.reached and not _exceeded(choice, choices.budget)


def reasons(choices: DeployChoices, titles: Mapping[str, str] | None = None) -> list[str]:
    """Why this method: its difference from the cheapest one, and from the best one.

    Args:
        choices: The run's choices.
        titles: Of the methods, for readers.
    """
    titles = dict(titles or {})
    choice = choices.choice
    if choice is not None and choice.alarms == "proposals":
        titles[choice.method] = PROPOSALS_ALONE
    texts = []
    gain = choices.over_cheapest
    if gain is not None:
        verdict = "not significantly better"
        if gain.is_significant:
            verdict = "significantly better"
        than = titles.get(gain.than, gain.than)
        texts.append(
            f"On held-out images {titles.get(gain.method, gain.method)} is {verdict} than {than}, "
            f"the cheapest method, both set for the same limits: it {_gained(gain, 's')}"
            f"{_alarms_of_both(choices, gain)}."
        )
    elif _only_choice_is_within(choices):
        cheapest = choices.cheapest or ""
        texts.append(
            f"{titles.get(cheapest, cheapest)}, the cheapest method, has no setting within the "
            "limits."
        )
    elif _cheapest_is_best(choices):
        cheapest = choices.cheapest or ""
        text = (
            f"{titles.get(cheapest, cheapest)} is the cheapest method, and none is better where it "
            "was chosen."
        )
        if titles.get(cheapest) == PROPOSALS_ALONE:
            text = "Where they were chosen, no method's scores find more within the limits."
        texts.append(text)
    passed_over = choices.passed_over
    if passed_over is not None:
        than = titles.get(passed_over.than, passed_over.than)
        texts.append(
            f"{titles.get(passed_over.method, passed_over.method)} would "
            f"{_gained(passed_over)} than {than}: not significant, so the cheaper one is taken."
        )
    return texts


def _alarms_of_both(choices: DeployChoices, gain: MethodGain) -> str:
    """False alarms of two methods on held-out images, where a limit need not hold.

    "" where these are compared themselves.
    """
    if gain.axis == "false_alarms":
        return ""
    alarms = choices.methods[gain.method].measured["false_alarms"].value
    alarms_of_other = choices.methods[gain.than].measured["false_alarms"].value
    return (
        f", with a false alarm in {number('false_alarms', alarms)} of the ID images instead of "
        f"{number('false_alarms', alarms_of_other)}"
    )


def _only_choice_is_within(choices: DeployChoices) -> bool:
    """Whether the chosen method has a setting within the limits, and the cheapest one has none."""
    choice = choices.choice
    if choice is None or choices.cheapest is None:
        return False
    return choice.reached and not choices.methods[choices.cheapest].reached


def _cheapest_is_best(choices: DeployChoices) -> bool:
    """Whether the cheapest of several methods was chosen, and none has better values there."""
    choice = choices.choice
    if choice is None or not choice.reached or len(choices.methods) < 2:
        return False
    return choice.method == choices.cheapest and choices.passed_over is None


def _gained(gain: MethodGain, ending: str = "") -> str:
    """A difference in words, such as "find +2.0 [−0.3, 4.1] points more unknown objects".

    Args:
        gain: The difference.
        ending: Of the verb.
    """
    if gain.axis == "false_alarms":
        return f"alarm{ending} in {_difference(gain, 100, 1)} points fewer of the ID images"
    return f"find{ending} {_difference(gain, 100, 1)} points more of the unknown objects"


def _difference(gain: MethodGain, factor: int, decimals: int) -> str:
    """A difference with its sign and its interval."""
    text = _signed(factor * gain.value, decimals)
    if gain.interval is None:
        return text
    low, high = gain.interval
    return f"{text} [{_signed(factor * low, decimals)}, {_signed(factor * high, decimals)}]"


def _signed(value: float, decimals: int) -> str:
    """A number with its sign.

    >>> _signed(2.04, 1), _signed(-0.3, 1), _signed(0.0, 1)
    ('+2.0', '−0.3', '+0.0')
    """
    return f"{value:+.{decimals}f}".replace("-", "−")


def instead(choices: DeployChoices) -> str:
    """What to do where the answer is out of budget; "" where it is within."""
    choice = choices.choice
    if choice is None or is_within(choices):
        return ""
    budget = choices.budget
    if choice.reached:
        return (
            "The images that it was chosen on and the held-out ones differ, or are too few. "
            "Choose with a lower limit, so that the limit that you need holds on held-out images, "
            "or add ID validation images."
        )
    if _flags_by_label(choice):
        return (
            "What the detector labels as unknown exceeds the limits without any score: raise them, "
            "or use a detector without such a label."
        )
    met_alone = []
    for axis in SUGGESTED:
        if axis in choices.alone and choices.alone[axis].reached:
            met_alone.append(limit(axis, budget.limits[axis]))
    advice = "Raise a limit, or change the detector: a score only turns misclassified objects "
    advice += "into found ones, and flags known objects, too."
    if met_alone:
        advice = f"Each alone can be met: {'; '.join(met_alone)}. {advice}"
    return advice


def next_budget(choices: DeployChoices) -> dict[str, float]:
    """Limits to try next, by parameter, where the answer is out of budget; else {}.

    They are one limit that can be met alone; or, where limits are met only where they were chosen,
    the same with halves of those that are exceeded.
    """
    choice = choices.choice
    if choice is None or is_within(choices):
        return {}
    limits_now = choices.budget.limits
    if choice.reached:
        if choices.budget.guarantee == "expected":
            return {}
        halved = {}
        for axis, maximum in limits_now.items():
            factor = 0.5 if choice.status(axis, maximum) == "exceeded" else 1.0
            halved[LIMITS[axis]] = factor * maximum
        return halved
    for axis in SUGGESTED:
        if axis in choices.alone and choices.alone[axis].reached:
            return {LIMITS[axis]: limits_now[axis]}
    return {}


def _flags_by_label(choice: DeployChoice) -> bool:
    """True if only objects that the detector itself labels as unknown are flagged."""
    by_proposals = choice.objectness is not None
    return (
        choice.tau == NOTHING_FLAGGED
        and not by_proposals
        and bool(choice.measured["false_alarms"].value)
    )


def setting_in_words(choice: DeployChoice, titles: Mapping[str, str]) -> str:
    """A method with its thresholds."""
    name = titles.get(choice.method, choice.method)
    flagged = f"τ = {tau(choice)}"
    if choice.tau == NOTHING_FLAGGED:
        flagged = "nothing flagged"
    if _flags_by_label(choice):
        flagged += " but what the detector labels as unknown"
    if choice.objectness is None:
        return f"{name} with t* = {choice.operating:.3g} and {flagged}"
    proposals = f"proposals of {choice.source} above {choice.objectness:.5g} called unknown"
    if choice.alarms == "proposals":
        return f"{PROPOSALS_ALONE}: t* = {choice.operating:.3g}, {flagged}, {proposals}"
    return f"{name} with t* = {choice.operating:.3g}, {flagged}, and {proposals}"


def _measured(choice: DeployChoice) -> str:
    """A sentence on the values that were measured on held-out images."""
    found = f"{with_interval('found', choice.measured['found'])} of the unknown objects found"
    alarms = with_interval("false_alarms", choice.measured["false_alarms"])
    alarms = f"{alarms} of the ID images with a false alarm"
    if choice.alarms == "both":
        found_part = number("found", choice.measured["found_by_proposals"].value)
        alarms_part = number("false_alarms", choice.measured["alarms_of_proposals"].value)
        found += f" ({found_part} by proposals)"
        alarms += f" ({alarms_part} by proposals)"
    misclassified = with_interval("misclassified", choice.measured["misclassified"])
    lost = with_interval("recall_lost", choice.measured["recall_lost"])
    values = [
        found,
        f"{misclassified} {WORDS['misclassified'].unit}",
        alarms,
        f"{lost} {WORDS['recall_lost'].unit}",
    ]
    return f"Measured on held-out images: {enumerated(values)}."


def with_interval(axis: str, cost: MeasuredCost) -> str:
    """A value, with its interval if it has one."""
    interval = between(axis, cost)
    if not interval:
        return number(axis, cost.value)
    return f"{number(axis, cost.value)} {interval}"


def remarks(choices: DeployChoices, titles: Mapping[str, str] | None = None) -> list[str]:
    """What the data can and cannot show, and what to do where the answer is out of budget.

    Args:
        choices: The run's choices.
        titles: Of the methods, for readers.
    """
    texts = [*choices.notes, *_methods_of_halves(choices, titles or {})]
    advice = instead(choices)
    if advice:
        texts.append(advice)
    return texts


def _methods_of_halves(choices: DeployChoices, titles: Mapping[str, str]) -> Iterator[str]:
    """A sentence where a half of the OOD images, or each, prefers another method."""
    choice = choices.choice
    if choice is None:
        return
    methods = {setting.method for setting in choice.folds}
    others = sorted(methods - {choice.method})
    if not others:
        return
    halves = "Half of the OOD images"
    if choice.method not in methods:
        halves = "Each half of the OOD images"
    names = enumerated([titles.get(name, name) for name in others])
    yield f"{halves} by itself preferred {names}, so this choice is uncertain."


def axis_rows(choices: DeployChoices) -> list[dict[str, str]]:
    """One row per axis: its limit, values where it was chosen and on held-out images.

    Also whether the limit is met on either.
    """
    choice = choices.choice
    if choice is None:
        return []
    limit_by_axis = choices.budget.limits
    rows = []
    for axis, cost in choice.measured.items():
        row = {
            "Measure": WORDS[axis].title,
            "Limit": "",
            "Where chosen": "",
            WHERE_CHOSEN: "",
            "Held-out": number(axis, cost.value),
            "95% interval": between(axis, cost),
            "n": "",
            HELD_OUT: "",
        }
        if axis in choice.chosen_on:
            row["Where chosen"] = number(axis, choice.chosen_on[axis].value)
        if cost.count is not None:
            row["n"] = f"{cost.count:,} of {cost.of:,}"
        if axis in limit_by_axis:
            maximum = limit_by_axis[axis]
            row["Limit"] = f"{100 * maximum:g}%"
            row[WHERE_CHOSEN] = _met_where_chosen(choice, axis, maximum)
            row[HELD_OUT] = STATUS[choice.status(axis, maximum)]
        rows.append(row)
    return rows


def _met_where_chosen(choice: DeployChoice, axis: str, maximum: float) -> str:
    """Whether a limit holds where it was chosen; the bound counts, where the value has one."""
    if choice.reached:  # also where nothing is flagged, so that too few images need show nothing
        return "yes"
    cost = choice.chosen_on[axis]
    value = cost.value if cost.bound is None else cost.bound
    return "yes" if value is not None and value <= maximum + ROUNDING else "no"


def short_rows(named: Mapping[str, DeployChoice], first: str) -> list[dict[str, str]]:
    """One row per choice for terminals: measured values without their intervals.

    Args:
        named: Name of each row → choice.
        first: Heading of the names; "method" where these are the methods, whose rows have the
            thresholds.
    """
    rows = []
    for name, choice in named.items():
        row = {first: name}
        if first == "method":
            row["t*"] = f"{choice.operating:.3f}"
            row["τ"] = tau(choice)
        else:
            row["method"] = choice.method
        for axis, words in WORDS.items():
            if words.short:
                row[words.short] = number(axis, choice.measured[axis].value)
        rows.append(row)
    return rows


def enumerated(texts: Sequence[str]) -> str:
    """Texts joined by "and"; three or more with a serial comma."""
    if len(texts) < 3:
        return " and ".join(texts)
    return f"{', '.join(texts[:-1])}, and {texts[-1]}"
