"""What to deploy of each run: words, tables and charts, for the page Deploy and for `farther choose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farther.evaluation.choice import Budget, Choice, Choices, Value
from farther.report.listing import ABSENT

#: Words of each axis.
AXES = {
    "misclassified": "unknown objects misclassified",
    "found": "unknown objects found",
    "missed": "unknown objects missed",
    "false_alarms": "false alarms per 100 ID images",
    "images_with_false_alarms": "ID images with a false alarm",
    "recall_lost": "known objects lost",
    "map50_lost": "mAP50 lost",
}

#: Axes that methods are compared on.
COMPARED = ("misclassified", "found", "missed", "false_alarms", "recall_lost")

#: Words of `Choice.status`.
STATUS = {"met": "within", "exceeded": "beyond", "open": "undecided"}


def number(axis: str, value: float | None) -> str:
    """A value of an axis as it is printed: per cent, or alarms per 100 images.

    >>> number("misclassified", 0.0123), number("false_alarms", 2.04), number("found", None)
    ('1.2%', '2.0', '—')
    """
    if value is None:
        return ABSENT
    return f"{value:.1f}" if axis == "false_alarms" else f"{100 * value:.1f}%"


def between(axis: str, found: Value) -> str:
    """Both ends of an interval; "" where there is none."""
    if found.interval is None:
        return ""
    low, high = (number(axis, end).rstrip("%") for end in found.interval)
    return f"{low} to {high}"


def limit(axis: str, most: float) -> str:
    """A limit in words.

    >>> limit("misclassified", 0.01), limit("false_alarms", 2)
    ('at most 1% of the unknown objects misclassified', 'at most 2 false alarms per 100 ID images')
    """
    words = {"misclassified": "of the unknown objects misclassified", "recall_lost": "of the known objects lost"}
    return f"at most {most:g} {AXES[axis]}" if axis == "false_alarms" else f"at most {100 * most:g}% {words[axis]}"


def limits(budget: Budget) -> str:
    """All limits of a budget in one line."""
    return _and([limit(axis, most) for axis, most in budget.limits.items()])


def setting(choice: Choice, title: str) -> str:
    """A method with its thresholds."""
    return f"{title} at t* {choice.operating:.3g} and τ {choice.tau:.6g}"


def answer(choices: Choices, titles: Mapping[str, str] | None = None) -> str:
    """The answer in words: what to deploy, or that no setting reaches the budget and what is nearest.

    Args:
        choices: The run's choices.
        titles: Of the methods, for readers.
    """
    if choices.choice is None:
        return " ".join(choices.notes)
    choice, budget = choices.choice, choices.budget
    chosen = setting(choice, (titles or {}).get(choice.method, choice.method))
    guaranteed = " with a guarantee" if budget.guarantee == "conformal" else ""
    if choice.reached:
        return f"Deploy {chosen}: on the images it was chosen on{guaranteed}, {limits(budget)}."
    others = [limit(axis, most) for axis, most in budget.limits.items() if axis != "misclassified"]
    found = choice.chosen_on["misclassified"]
    nearest = f"The nearest is {chosen}: {number('misclassified', found.value)} misclassified"
    return f"No method reaches {limits(budget)}{guaranteed}. {nearest}, with {_and(others)}."


def axis_rows(choice: Choice, budget: Budget) -> list[dict[str, str]]:
    """One row per axis: its limit, the values on the images that were chosen on and on others, and whether it holds."""
    rows = []
    for axis, found in choice.measured.items():
        most = budget.limits.get(axis)
        rows.append(
            {
                "": AXES[axis],
                "limit": "" if most is None else number(axis, most),
                "chosen on": number(axis, choice.chosen_on[axis].value) if axis in choice.chosen_on else "",
                "measured": number(axis, found.value),
                "95% interval": between(axis, found),
                "counted": "" if found.count is None else f"{found.count:,} of {found.of:,}",
                "limit?": "" if most is None else STATUS[choice.status(axis, most)],
            }
        )
    return rows


def setting_rows(named: Mapping[str, Choice], budget: Budget | None, first: str) -> list[dict[str, str]]:
    """One row per choice: thresholds, and measured values with their intervals."""
    rows = []
    for name, choice in named.items():
        row = {first: name, "method": choice.method} if first != "method" else {first: name}
        row |= {"t*": f"{choice.operating:.3g}", "τ": f"{choice.tau:.4g}"}
        for axis in COMPARED:
            found = choice.measured[axis]
            interval = between(axis, found)
            row[AXES[axis]] = number(axis, found.value) + (f" ({interval})" if interval else "")
        if budget is not None:
            row["reached"] = "yes" if choice.reached else "no"
        rows.append(row)
    return rows


def _and(parts: Sequence[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
