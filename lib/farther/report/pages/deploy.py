"""What to deploy of each run: words, tables and charts, for the page Deploy and for `farther choose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from farther.evaluation.deploy.results import Budget, DeployChoice, DeployChoices, MeasuredCost
from farther.evaluation.deploy.search import NOTHING_FLAGGED
from farther.evaluation.files import RunFiles
from farther.report.all_results import AllResults
from farther.report.charts import deploy as charts
from farther.report.listing import ABSENT, Listing
from farther.report.results import Run
from farther.report.site import Site


class Words(NamedTuple):
    """What an axis is called.

    Args:
        title: In rows of tables.
        of: After a number; "" for an axis that no budget limits.
        of_images: The same of limits that hold in expectation on new images.
        head: Head of a column; "" for an axis without one.
        short: The same in a terminal.
    """

    title: str
    of: str = ""
    of_images: str = ""
    head: str = ""
    short: str = ""


WORDS = {
    "misclassified": Words(
        "unknown objects misclassified",
        "of the unknown objects misclassified",
        "of an image's unknown objects misclassified",
        "misclassified",
        "misclassified",
    ),
    "found": Words("unknown objects found", head="found", short="found"),
    "missed": Words("unknown objects missed"),
    "false_alarms": Words(
        "false alarms per 100 ID images",
        "false alarms per 100 ID images",
        "of 100 ID images with a false alarm",
        "alarms per 100",
        "alarms",
    ),
    "images_with_false_alarms": Words("ID images with a false alarm"),
    "recall_lost": Words(
        "known objects lost",
        "of the known objects lost",
        "of an image's known objects lost",
        "known lost",
        "lost",
    ),
    "map50_lost": Words("mAP50 lost"),
}

#: Words of `DeployChoice.status`.
STATUS = {"met": "yes", "exceeded": "no", "open": "undecided"}


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("deploy.html", **content(results.evaluated, results.artifacts))


def content(runs: Sequence[Run], artifacts: Path) -> dict[str, Any]:
    """Variables of the template `deploy.html`."""
    files = {
        run.full_title: (run, RunFiles(run.name, run.benchmark, artifacts).choice) for run in runs
    }
    found = {
        title: (run, DeployChoices.read(file))
        for title, (run, file) in files.items()
        if file.is_file()
    }
    rows = [
        row
        for title, (run, one) in found.items()
        if one.choice is not None
        for row in setting_rows({title: one.choice}, "Detector", _titles(run))
    ]
    caption = "What to deploy for each run: values with 95% intervals, on held-out images; n: unknown objects and ID images."
    reached = sum(one.choice.reached for _, one in found.values() if one.choice is not None)
    verb = "has" if reached == 1 else "have"
    not_chosen = [run.name for title, (run, _) in files.items() if title not in found]
    return {
        "not_chosen": not_chosen,
        "message": f"{reached} of {len(found)} detectors {verb} a setting within the budget.",
        "overview": _listing(caption, rows, "Detector"),
        "budgets": list(dict.fromkeys(limits(one.budget) for _, one in found.values())),
        "held_out": next((held_out(one) for _, one in found.values()), ""),
        "contents": {f"run-{number}": name for number, name in enumerate(found, start=1)},
        "runs": {title: _of_run(one, _titles(run)) for title, (run, one) in found.items()},
    }


def _titles(run: Run) -> dict[str, str]:
    return {name: run.label(name) for name in run.methods}


def _of_run(choices: DeployChoices, titles: Mapping[str, str]) -> dict[str, Any]:
    """Answer, tables and chart of a run; the answer alone where nothing was chosen."""
    said, choice, budget = answer(choices, titles), choices.choice, choices.budget
    if choice is None:
        return {"answer": said, "notes": [], "chart": None, "tables": [], "more": []}
    alone = {named_limit(axis, budget).capitalize(): one for axis, one in choices.alone.items()}
    named = {titles.get(name, name): one for name, one in choices.methods.items()}
    return {
        "answer": said,
        "notes": remarks(choices),
        "tables": [
            _listing(
                "The setting on the images it was chosen on, and on held-out images.",
                axis_rows(choices),
                "",
            ),
            _listing(
                "The best setting for each limit alone.",
                setting_rows(alone, "Limit", titles),
                "Limit",
            ),
        ],
        "more": [
            _listing(
                "The best setting of each method.", setting_rows(named, "Method", {}), "Method"
            ),
            _listing(
                "Unknown objects of each OOD split with the chosen setting.",
                split_rows(choice),
                "Split",
            ),
        ],
        "chart": charts.trade_off(choices, titles, limits_in_words(budget), said),
    }


def _listing(caption: str, rows: Sequence[Mapping[str, str]], first: str) -> Listing:
    """A table; all columns but the first and those of words are flush right."""
    left = (first, "Method", "Reached", "Within limit")
    return Listing.of(caption, rows, [head for row in rows[:1] for head in row if head not in left])


def number(axis: str, value: float | None) -> str:
    """A value of an axis as it is printed: per cent, or alarms per 100 images.

    >>> number("misclassified", 0.0123), number("false_alarms", 2.04), number("found", None)
    ('1.2%', '2.0', '—')
    """
    if value is None:
        return ABSENT
    return f"{value:.1f}" if axis == "false_alarms" else f"{100 * value:.1f}%"


def between(axis: str, found: MeasuredCost) -> str:
    """Both ends of an interval; "" where there is none."""
    if found.interval is None:
        return ""
    low, high = (number(axis, end).rstrip("%") for end in found.interval)
    return f"{low} to {high}"


def limit(axis: str, most: float, *, guaranteed: bool = False) -> str:
    """A limit in words.

    Args:
        axis, most: The axis and its limit.
        guaranteed: Whether it holds in expectation on new images: then it is of images, each
            counting the same.

    >>> limit("misclassified", 0.01), limit("false_alarms", 2)
    ('at most 1% of the unknown objects misclassified', 'at most 2 false alarms per 100 ID images')
    >>> limit("false_alarms", 2, guaranteed=True)
    'at most 2 of 100 ID images with a false alarm'
    """
    words = WORDS[axis].of_images if guaranteed else WORDS[axis].of
    return (
        f"at most {most:g} {words}"
        if axis == "false_alarms"
        else f"at most {100 * most:g}% {words}"
    )


def named_limit(axis: str, budget: Budget) -> str:
    """A limit as the name of a row.

    >>> named_limit("false_alarms", Budget(max_false_alarms=2))
    'alarms 2'
    """
    most = budget.limits[axis]
    return (
        f"{WORDS[axis].short} {most:g}"
        if axis == "false_alarms"
        else f"{WORDS[axis].short} {100 * most:g}%"
    )


def limits_in_words(budget: Budget) -> dict[str, str]:
    """Each limit of a budget in words, by axis."""
    guaranteed = budget.guarantee == "conformal"
    return {axis: limit(axis, most, guaranteed=guaranteed) for axis, most in budget.limits.items()}


def limits(budget: Budget) -> str:
    """All limits of a budget in one line."""
    return _and(list(limits_in_words(budget).values()))


def held_out(choices: DeployChoices) -> str:
    """What was chosen on, and what was measured on, in one sentence."""
    (chosen, measured), split = choices.id_splits, choices.budget.choose_on
    halves = "chosen on one half of the images of each OOD split and measured on the other, and vice versa"
    ood = f"chosen on {split} and measured on the other OOD splits" if split else halves
    of_id = f"For false alarms and known objects, thresholds are chosen on ID split {chosen} and measured on {measured}"
    return f"{of_id}; for unknown objects, {ood}."


def tau(choice: DeployChoice) -> str:
    """τ as it is printed."""
    return "none flagged" if choice.tau == NOTHING_FLAGGED else f"{choice.tau:.5g}"


def answer(choices: DeployChoices, titles: Mapping[str, str] | None = None) -> str:
    """The answer in words: what to deploy, or that no setting reaches the budget and what is nearest.

    Args:
        choices: The run's choices.
        titles: Of the methods, for readers.
    """
    if choices.choice is None:
        return " ".join(choices.notes)
    choice, budget = choices.choice, choices.budget
    name = (titles or {}).get(choice.method, choice.method)
    by_label = choice.tau == NOTHING_FLAGGED and bool(choice.measured["false_alarms"].value)
    flagged = "nothing flagged" if choice.tau == NOTHING_FLAGGED else f"τ = {tau(choice)}"
    chosen = f"{name} with t* = {choice.operating:.3g} and {flagged}"
    if by_label:
        chosen += " but what the detector labels as unknown"
    guaranteed = budget.guarantee == "conformal"
    if choice.reached:
        where = (
            "in expectation on new images like those it was chosen on"
            if guaranteed
            else "where it was chosen"
        )
        return f"Deploy {chosen}: {limits(budget)} {where}. {_measured(choice)}"
    others = [words for axis, words in limits_in_words(budget).items() if axis != "misclassified"]
    within = f" within {_and(others)}" if others and not by_label else ""
    kind = "has a guarantee of" if guaranteed else "reaches"
    return f"No method {kind} {limits(budget)}. The closest setting{within} is {chosen}. {_measured(choice)}"


def _measured(choice: DeployChoice) -> str:
    parts = [
        f"{_with_interval(axis, choice.measured[axis])} {words.of}"
        for axis, words in WORDS.items()
        if words.of
    ]
    return f"Measured on held-out images: {_and(parts)}."


def _with_interval(axis: str, found: MeasuredCost) -> str:
    """A value, with its interval in brackets where it has one."""
    interval = between(axis, found)
    return number(axis, found.value) + (f" ({interval})" if interval else "")


def remarks(choices: DeployChoices) -> list[str]:
    """What the data can and cannot show, and limits that hold where a setting was chosen, but not on other images."""
    choice, beyond = choices.choice, []
    for axis, most in choices.budget.limits.items() if choice else ():
        assert choice is not None
        before, after = choice.chosen_on[axis].value, choice.measured[axis].value
        if before is not None and before <= most and choice.status(axis, most) == "exceeded":
            chosen, measured = number(axis, before), number(axis, after)
            beyond.append(f"{WORDS[axis].title} ({chosen} where chosen, {measured} measured)")
    said = f"Over the limit on held-out images: {_and(beyond)}. The two sets of images differ, or are too small."
    return [*choices.notes, *([said] if beyond else [])]


def axis_rows(choices: DeployChoices) -> list[dict[str, str]]:
    """One row per axis: its limit, the values on the images that were chosen on and on others, and whether it holds."""
    rows: list[dict[str, str]] = []
    choice, budget = choices.choice, choices.budget
    limited = dict(budget.limits)
    if budget.guarantee == "conformal" and "false_alarms" in limited:  # which is then of images
        limited["images_with_false_alarms"] = limited.pop("false_alarms") / 100
    for axis, found in choice.measured.items() if choice else ():
        assert choice is not None
        most = limited.get(axis)
        rows.append(
            {
                "": WORDS[axis].title,
                "Limit": "" if most is None else number(axis, most),
                "Chosen on": number(axis, choice.chosen_on[axis].value)
                if axis in choice.chosen_on
                else "",
                "Measured": number(axis, found.value),
                "95% interval": between(axis, found),
                "n": "" if found.count is None else f"{found.count:,} of {found.of:,}",
                "Within limit": "" if most is None else STATUS[choice.status(axis, most)],
            }
        )
    return rows


def setting_rows(
    named: Mapping[str, DeployChoice], first: str, titles: Mapping[str, str]
) -> list[dict[str, str]]:
    """One row per choice: thresholds, and measured values with their intervals; `first` heads the names."""
    rows = []
    for name, choice in named.items():
        row = {first: name} | (
            {} if first == "Method" else {"Method": titles.get(choice.method, choice.method)}
        )
        row |= {"t*": f"{choice.operating:.3f}", "τ": tau(choice)}
        for axis, words in WORDS.items():
            if words.head:
                found = choice.measured[axis]
                text = _with_interval(axis, found) if words.of else number(axis, found.value)
                row[words.head.capitalize()] = text
        counts = [choice.measured[axis].of or 0 for axis in ("misclassified", "false_alarms")]
        rows.append(
            {
                **row,
                "n": " / ".join(f"{n:,}" for n in counts),
                "Reached": "yes" if choice.reached else "no",
            }
        )
    return rows


def short_rows(named: Mapping[str, DeployChoice], first: str) -> list[dict[str, str]]:
    """One row per choice for terminals: measured values without their intervals."""
    rows = []
    for name, choice in named.items():
        thresholds = {"t*": f"{choice.operating:.3f}", "τ": tau(choice)}
        row = {first: name, **(thresholds if first == "method" else {"method": choice.method})}
        values = {
            w.short: number(axis, choice.measured[axis].value)
            for axis, w in WORDS.items()
            if w.short
        }
        rows.append(row | values)
    return rows


def split_rows(choice: DeployChoice) -> list[dict[str, str]]:
    """Outcomes of the unknown objects of each OOD split."""
    heads = {"misclassified": "Misclassified", "found": "Found", "missed": "Missed"}
    return [
        {
            "Split": split,
            "Objects": f"{of['misclassified'].of:,}",
            "Images": f"{of['misclassified'].images:,}",
            **{
                head: f"{number(axis, of[axis].value)} ({between(axis, of[axis])})"
                for axis, head in heads.items()
            },
        }
        for split, of in choice.by_split.items()
    ]


def _and(parts: Sequence[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
