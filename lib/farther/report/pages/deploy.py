"""What to deploy of each run: words, tables and charts, for its page and for `farther choose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.evaluation.deploy.results import Budget, DeployChoice, DeployChoices, MeasuredCost
from farther.evaluation.deploy.search import NOTHING_FLAGGED
from farther.evaluation.files import RunFiles
from farther.report.all_results import AllResults
from farther.report.charts import deploy as charts
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing
from farther.report.results import Run
from farther.report.site import Site


@dataclass(frozen=True)
class AxisWords:
    """An axis in words.

    Args:
        title: In rows of tables.
        unit: After a number; "" for an axis that no budget limits.
        unit_of_images: The same of limits that hold in expectation on new images.
        head: Heading of a column; "" for an axis without one.
        short: The same in a terminal.
    """

    title: str
    unit: str = ""
    unit_of_images: str = ""
    head: str = ""
    short: str = ""


WORDS = {
    "misclassified": AxisWords(
        title="unknown objects misclassified",
        unit="of the unknown objects misclassified",
        unit_of_images="of an image's unknown objects misclassified",
        head="misclassified",
        short="misclassified",
    ),
    "found": AxisWords(title="unknown objects found", head="found", short="found"),
    "missed": AxisWords(title="unknown objects missed"),
    "false_alarms": AxisWords(
        title="false alarms per 100 ID images",
        unit="false alarms per 100 ID images",
        unit_of_images="of 100 ID images with a false alarm",
        head="alarms per 100",
        short="alarms",
    ),
    "images_with_false_alarms": AxisWords(title="ID images with a false alarm"),
    "recall_lost": AxisWords(
        title="known objects lost",
        unit="of the known objects lost",
        unit_of_images="of an image's known objects lost",
        head="known lost",
        short="lost",
    ),
    "map50_lost": AxisWords(title="mAP50 lost"),
}

#: Words of `DeployChoice.status`.
STATUS = {"met": "yes", "exceeded": "no", "open": "undecided"}

#: Outcomes of unknown objects → headings.
OUTCOMES = {"misclassified": "Misclassified", "found": "Found", "missed": "Missed"}

#: Columns of words, which are flush left, as the first column is.
TEXT_COLUMNS = ("Method", "Reached", "Within limit")


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("deploy.html", **content(results.evaluated, results.artifacts))


@dataclass(frozen=True)
class _RunChoices:
    """A run with its choices."""

    run: Run
    choices: DeployChoices

    @property
    def titles(self) -> dict[str, str]:
        """Method → its title."""
        return {name: self.run.label(name) for name in self.run.methods}


def content(runs: Sequence[Run], artifacts: Path) -> dict[str, Any]:
    """Variables of the template `deploy.html`."""
    run_choices = []
    not_chosen = []
    for run in runs:
        file = RunFiles(run.name, run.benchmark, artifacts).choice
        if file.is_file():
            run_choices.append(_RunChoices(run, DeployChoices.read(file)))
        else:
            not_chosen.append(run.name)

    views = {item.run.full_title: _run_view(item) for item in run_choices}
    budgets = [limits(item.choices.budget) for item in run_choices]
    return {
        "not_chosen": not_chosen,
        "message": _message(run_choices),
        "overview": _overview(run_choices),
        "budgets": list(dict.fromkeys(budgets)),
        "held_out": held_out(run_choices[0].choices) if run_choices else "",
        "contents": {f"run-{number}": title for number, title in enumerate(views, start=1)},
        "runs": views,
    }


def _message(run_choices: Sequence[_RunChoices]) -> str:
    """How many detectors have a setting within the budget."""
    reached = 0
    for item in run_choices:
        if item.choices.choice is not None and item.choices.choice.reached:
            reached += 1
    verb = "has" if reached == 1 else "have"
    return f"{reached} of {len(run_choices)} detectors {verb} a setting within the budget."


def _overview(run_choices: Sequence[_RunChoices]) -> Listing:
    """One row per run that has a choice."""
    rows: list[dict[str, str]] = []
    for item in run_choices:
        if item.choices.choice is not None:
            named = {item.run.full_title: item.choices.choice}
            rows += setting_rows(named, "Detector", item.titles)
    caption = (
        "What to deploy for each run: values with 95% intervals, on held-out images; "
        "n: unknown objects and ID images."
    )
    return _listing(caption, rows, "Detector")


def _run_view(item: _RunChoices) -> dict[str, Any]:
    """Answer, tables and chart of a run; only the answer where nothing was chosen."""
    choices = item.choices
    titles = item.titles
    answer_text = answer(choices, titles)
    if choices.choice is None:
        return {"answer": answer_text, "notes": [], "chart": None, "tables": [], "more": []}
    limit_words = limits_in_words(choices.budget)
    return {
        "answer": answer_text,
        "notes": remarks(choices),
        "tables": [_axes_table(choices), _limits_table(choices, titles)],
        "more": [_methods_table(choices, titles), _splits_table(choices.choice)],
        "chart": vl.of_run(
            charts.trade_off(choices, titles, limit_words, answer_text),
            item.run.name,
            item.run.full_title,
        ),
    }


def _axes_table(choices: DeployChoices) -> Listing:
    caption = "The setting on the images it was chosen on, and on held-out images."
    return _listing(caption, axis_rows(choices), "")


def _limits_table(choices: DeployChoices, titles: Mapping[str, str]) -> Listing:
    choice_by_limit = {}
    for axis, choice in choices.alone.items():
        choice_by_limit[named_limit(axis, choices.budget).capitalize()] = choice
    rows = setting_rows(choice_by_limit, "Limit", titles)
    return _listing("The best setting for each limit alone.", rows, "Limit")


def _methods_table(choices: DeployChoices, titles: Mapping[str, str]) -> Listing:
    choice_by_method = {}
    for name, choice in choices.methods.items():
        choice_by_method[titles.get(name, name)] = choice
    rows = setting_rows(choice_by_method, "Method", {})
    return _listing("The best setting of each method.", rows, "Method")


def _splits_table(choice: DeployChoice) -> Listing:
    caption = "Unknown objects of each OOD split with the chosen setting."
    return _listing(caption, split_rows(choice), "Split")


def _listing(caption: str, rows: Sequence[Mapping[str, str]], first: str) -> Listing:
    """A table; all columns but the first and those of words are flush right."""
    numbers: list[str] = []
    if rows:
        numbers = [head for head in rows[0] if head != first and head not in TEXT_COLUMNS]
    return Listing.from_rows(caption, rows, numbers)


def number(axis: str, value: float | None) -> str:
    """A value of an axis as it is printed: per cent, or alarms per 100 images.

    >>> number("misclassified", 0.0123), number("false_alarms", 2.04), number("found", None)
    ('1.2%', '2.0', '—')
    """
    if value is None:
        return ABSENT
    if axis == "false_alarms":
        return f"{value:.1f}"
    return f"{100 * value:.1f}%"


def between(axis: str, cost: MeasuredCost) -> str:
    """Both ends of an interval; "" where there is none."""
    if cost.interval is None:
        return ""
    low, high = cost.interval
    return f"{number(axis, low).rstrip('%')} to {number(axis, high).rstrip('%')}"


def limit(axis: str, maximum: float, *, guaranteed: bool = False) -> str:
    """A limit in words.

    Args:
        axis, maximum: The axis and its limit.
        guaranteed: Whether it holds in expectation on new images: then it is of images, each
            counting the same.

    >>> limit("misclassified", 0.01), limit("false_alarms", 2)
    ('at most 1% of the unknown objects misclassified', 'at most 2 false alarms per 100 ID images')
    >>> limit("false_alarms", 2, guaranteed=True)
    'at most 2 of 100 ID images with a false alarm'
    """
    words = WORDS[axis]
    unit = words.unit_of_images if guaranteed else words.unit
    return f"at most {_limit_number(axis, maximum)} {unit}"


def named_limit(axis: str, budget: Budget) -> str:
    """A limit as the name of a row.

    >>> named_limit("false_alarms", Budget(max_false_alarms=2))
    'alarms 2'
    """
    return f"{WORDS[axis].short} {_limit_number(axis, budget.limits[axis])}"


def _limit_number(axis: str, maximum: float) -> str:
    """A limit as it is printed: per cent, or alarms per 100 images."""
    if axis == "false_alarms":
        return f"{maximum:g}"
    return f"{100 * maximum:g}%"


def limits_in_words(budget: Budget) -> dict[str, str]:
    """Each limit of a budget in words, by axis."""
    guaranteed = budget.guarantee == "conformal"
    words = {}
    for axis, maximum in budget.limits.items():
        words[axis] = limit(axis, maximum, guaranteed=guaranteed)
    return words


def limits(budget: Budget) -> str:
    """All limits of a budget in one line."""
    return _enumerated(list(limits_in_words(budget).values()))


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


def tau(choice: DeployChoice) -> str:
    """τ as it is printed."""
    if choice.tau == NOTHING_FLAGGED:
        return "none flagged"
    return f"{choice.tau:.5g}"


def answer(choices: DeployChoices, titles: Mapping[str, str] | None = None) -> str:
    """The answer in words: what to deploy, or that no setting reaches the budget.

    In the latter case it has the closest setting.

    Args:
        choices: The run's choices.
        titles: Of the methods, for readers.
    """
    choice = choices.choice
    if choice is None:
        return " ".join(choices.notes)
    budget = choices.budget
    guaranteed = budget.guarantee == "conformal"
    setting = _setting_in_words(choice, titles or {})
    if choice.reached:
        condition = "where it was chosen"
        if guaranteed:
            condition = "in expectation on new images like those it was chosen on"
        return f"Deploy {setting}: {limits(budget)} {condition}. {_measured(choice)}"

    further_limits = limits_in_words(budget)
    further_limits.pop("misclassified", None)
    within = ""
    if further_limits and not _flags_by_label(choice):
        within = f" within {_enumerated(list(further_limits.values()))}"
    verb = "has a guarantee of" if guaranteed else "reaches"
    return (
        f"No method {verb} {limits(budget)}. The closest setting{within} is {setting}. "
        f"{_measured(choice)}"
    )


def _flags_by_label(choice: DeployChoice) -> bool:
    """True if only objects that the detector itself labels as unknown are flagged."""
    return choice.tau == NOTHING_FLAGGED and bool(choice.measured["false_alarms"].value)


def _setting_in_words(choice: DeployChoice, titles: Mapping[str, str]) -> str:
    """A method with its thresholds."""
    name = titles.get(choice.method, choice.method)
    flagged = f"τ = {tau(choice)}"
    if choice.tau == NOTHING_FLAGGED:
        flagged = "nothing flagged"
    setting = f"{name} with t* = {choice.operating:.3g} and {flagged}"
    if _flags_by_label(choice):
        setting += " but what the detector labels as unknown"
    return setting


def _measured(choice: DeployChoice) -> str:
    """A sentence on the values that were measured on held-out images."""
    values = []
    for axis, words in WORDS.items():
        if words.unit:
            values.append(f"{_with_interval(axis, choice.measured[axis])} {words.unit}")
    return f"Measured on held-out images: {_enumerated(values)}."


def _with_interval(axis: str, cost: MeasuredCost) -> str:
    """A value, with its interval in brackets if it has one."""
    interval = between(axis, cost)
    if not interval:
        return number(axis, cost.value)
    return f"{number(axis, cost.value)} ({interval})"


def remarks(choices: DeployChoices) -> list[str]:
    """What the data can and cannot show.

    Also limits that hold where a setting was chosen, but not on other images.
    """
    choice = choices.choice
    if choice is None:
        return list(choices.notes)
    exceeded = []
    for axis, maximum in choices.budget.limits.items():
        value = choice.chosen_on[axis].value
        if value is None or value > maximum or choice.status(axis, maximum) != "exceeded":
            continue
        chosen = number(axis, value)
        measured = number(axis, choice.measured[axis].value)
        exceeded.append(f"{WORDS[axis].title} ({chosen} where chosen, {measured} measured)")
    if not exceeded:
        return list(choices.notes)
    remark = (
        f"Over the limit on held-out images: {_enumerated(exceeded)}. "
        "The two sets of images differ, or are too small."
    )
    return [*choices.notes, remark]


def axis_rows(choices: DeployChoices) -> list[dict[str, str]]:
    """One row per axis: its limit, and values on the images that were chosen on and on others.

    Also whether the limit holds.
    """
    choice = choices.choice
    if choice is None:
        return []
    limit_by_axis = _limit_by_axis(choices.budget)
    rows = []
    for axis, cost in choice.measured.items():
        row = {
            "": WORDS[axis].title,
            "Limit": "",
            "Chosen on": "",
            "Measured": number(axis, cost.value),
            "95% interval": between(axis, cost),
            "n": "",
            "Within limit": "",
        }
        if axis in choice.chosen_on:
            row["Chosen on"] = number(axis, choice.chosen_on[axis].value)
        if cost.count is not None:
            row["n"] = f"{cost.count:,} of {cost.of:,}"
        if axis in limit_by_axis:
            maximum = limit_by_axis[axis]
            row["Limit"] = number(axis, maximum)
            row["Within limit"] = STATUS[choice.status(axis, maximum)]
        rows.append(row)
    return rows


def _limit_by_axis(budget: Budget) -> dict[str, float]:
    """The limit of each axis; a guarantee of false alarms is of images with any."""
    limit_by_axis = dict(budget.limits)
    if budget.guarantee == "conformal" and "false_alarms" in limit_by_axis:
        limit_by_axis["images_with_false_alarms"] = limit_by_axis.pop("false_alarms") / 100
    return limit_by_axis


def setting_rows(
    named: Mapping[str, DeployChoice], first: str, titles: Mapping[str, str]
) -> list[dict[str, str]]:
    """One row per choice: thresholds, and measured values with their intervals.

    Args:
        named: Name of each row → choice.
        first: Heading of the names; "Method" where these are the methods.
        titles: Method → its title.
    """
    rows = []
    for name, choice in named.items():
        row = {first: name}
        if first != "Method":
            row["Method"] = titles.get(choice.method, choice.method)
        row["t*"] = f"{choice.operating:.3f}"
        row["τ"] = tau(choice)
        for axis, words in WORDS.items():
            if not words.head:
                continue
            cost = choice.measured[axis]
            if words.unit:
                row[words.head.capitalize()] = _with_interval(axis, cost)
            else:
                row[words.head.capitalize()] = number(axis, cost.value)
        objects = choice.measured["misclassified"].of or 0
        images = choice.measured["false_alarms"].of or 0
        row["n"] = f"{objects:,} / {images:,}"
        row["Reached"] = "yes" if choice.reached else "no"
        rows.append(row)
    return rows


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


def split_rows(choice: DeployChoice) -> list[dict[str, str]]:
    """Outcomes of the unknown objects of each OOD split."""
    rows = []
    for split, costs in choice.by_split.items():
        row = {
            "Split": split,
            "Objects": f"{costs['misclassified'].of:,}",
            "Images": f"{costs['misclassified'].images:,}",
        }
        for outcome, head in OUTCOMES.items():
            cost = costs[outcome]
            row[head] = f"{number(outcome, cost.value)} ({between(outcome, cost)})"
        rows.append(row)
    return rows


def _enumerated(texts: Sequence[str]) -> str:
    """Texts joined by "and"; three or more with a serial comma."""
    if len(texts) < 3:
        return " and ".join(texts)
    return f"{', '.join(texts[:-1])}, and {texts[-1]}"
