"""The page of what to deploy: a dial of limits and thresholds, and what methods cost.

Each stop of the limit is a choice that the stage `choose` made with the functions of `farther
choose`: method, thresholds, what they promise, and values on held-out images with their intervals.
None of it is computed by the page: a promise has to account for all settings that were compared,
which are in Python, and there must not be a second formula. What the page computes is what
thresholds that are set by hand find and cost on all test images, exactly, from the data of
`farther.evaluation.deploy.dial`; these promise nothing, and the page says so.

The data of a run are in `dials/<run>.js`, which the page loads when the run is shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_core import to_jsonable_python

from farther.evaluation.deploy.dial import DialData, DialImages
from farther.evaluation.deploy.results import (
    LIMITS,
    Budget,
    DeployChoice,
    DeployChoices,
    DialStop,
)
from farther.evaluation.files import RunFiles
from farther.report import deploy_words as words
from farther.report.all_results import AllResults
from farther.report.gallery.data import folder_url
from farther.report.listing import Listing
from farther.report.pages import cost, missed
from farther.report.results import Run
from farther.report.site import Site, as_script
from farther.tables import Images
from farther.tables.schema import read_typed

#: Outcomes that the bars of the page show.
BARS = ("found", "misclassified", "missed", "false_alarms", "recall_lost")

#: Columns of words, which are flush left.
TEXT_COLUMNS = ("Detector", "Method", "Proposals", "Limit", "On held-out images")


@dataclass(frozen=True)
class RunChoices:
    """A run with its choices."""

    run: Run
    choices: DeployChoices

    @property
    def titles(self) -> dict[str, str]:
        """Method → its title."""
        return {name: self.run.label(name) for name in self.run.methods}


def write(site: Site, results: AllResults) -> None:
    """Writes the page and the data of each run."""
    run_choices, not_chosen = read_choices(results.evaluated, results.artifacts)
    for item in run_choices:
        if item.choices.choice is not None:
            site.write_text(_script_file(item.run), _script(item, results))

    sources = missed.sources(results.evaluated, results.params["detectors"])
    costs = cost.write_costs(site, results.drawn.runs, results.artifacts, sources)
    variables = {**content(run_choices, not_chosen), **costs, "not_drawn": results.drawn.note}
    site.write("deploy.html", **variables)


def read_choices(runs: Sequence[Run], artifacts: Path) -> tuple[list[RunChoices], list[str]]:
    """The choices of each run, and the names of runs that have none yet.

    Raises:
        DataError: a file of choices is damaged.
    """
    run_choices = []
    not_chosen = []
    for run in runs:
        file = RunFiles(run.name, run.benchmark, artifacts).choice
        if file.is_file():
            run_choices.append(RunChoices(run, DeployChoices.read(file)))
        else:
            not_chosen.append(run.name)
    return run_choices, not_chosen


def content(run_choices: Sequence[RunChoices], not_chosen: Sequence[str] = ()) -> dict[str, Any]:
    """Variables of the template `deploy.html`, without costs.

    Args:
        run_choices: The runs with choices.
        not_chosen: Names of the others.
    """
    index = []
    without = {}
    for item in run_choices:
        if item.choices.choice is None:
            without[item.run.full_title] = " ".join(item.choices.notes)
            continue
        entry = {
            "name": item.run.name,
            "title": item.run.full_title,
            "file": quote(_script_file(item.run)),
        }
        index.append(entry)
    held_out = ""
    if run_choices:
        held_out = words.held_out(run_choices[0].choices)
    return {
        "heading": _heading(run_choices),
        "index": index,
        "overview": _overview(run_choices),
        "held_out": held_out,
        "without": without,
        "not_chosen": not_chosen,
    }


def _heading(run_choices: Sequence[RunChoices]) -> str:
    """The title of the page: what to deploy, or how many detectors have a setting; "" for none."""
    chosen = [item for item in run_choices if item.choices.choice is not None]
    if not chosen:
        return ""
    if len(chosen) == 1:
        return _heading_of_one(chosen[0])
    reached = 0
    for item in chosen:
        choice = item.choices.choice
        if choice is not None and choice.reached and not item.choices.too_few:
            reached += 1
    have = "has" if reached == 1 else "have"
    kept = {words.kept_limits(item.choices.budget): None for item in chosen}
    return f"{reached} of {len(chosen)} detectors {have} a setting that {' or '.join(kept)}"


def _heading_of_one(item: RunChoices) -> str:
    choices = item.choices
    choice = choices.choice
    if choice is None:
        return ""
    budget = choices.budget
    kept = words.kept_limits(budget)
    if choices.too_few:
        return f"{item.run.full_title}: too few images to show that a setting {kept}"
    if not choice.reached:
        return f"{item.run.full_title}: no setting {kept}"
    found = words.number("found", choice.measured["found"].value)
    return (
        f"{item.run.full_title} with {_method_title(item, choice)} finds {found} of the unknown "
        f"objects and {kept}"
    )


def _overview(run_choices: Sequence[RunChoices]) -> Listing | None:
    """One row per run; None for a single one, whose values are in the dial."""
    rows = []
    for item in run_choices:
        choice = item.choices.choice
        if choice is None:
            continue
        row = {"Detector": item.run.full_title, "Method": _method_title(item, choice)}
        for axis in ("found", "misclassified", "false_alarms", "recall_lost"):
            head = words.WORDS[axis].head
            row[head.capitalize()] = words.with_interval(axis, choice.measured[axis])
        row["Limit"] = STATUS[_status(choice, item.choices.too_few)]
        row["On held-out images"] = words.STATUS[words.status(choice, item.choices.budget)]
        rows.append(row)
    if len(rows) < 2:
        return None
    caption = "What to deploy of each detector: values on held-out images, with 95% intervals."
    return _listing(caption, rows)


#: Whether a limit holds, of `_status`.
STATUS = {"holds": "holds", "too few": "too few images", "not kept": "not kept"}


def _status(choice: DeployChoice, too_few: str) -> str:
    """Whether a setting keeps its limit where it was chosen."""
    if too_few:
        return "too few"
    return "holds" if choice.reached else "not kept"


def _method_title(item: RunChoices, choice: DeployChoice) -> str:
    if choice.alarms == "proposals":
        return words.PROPOSALS_ALONE
    title = item.titles.get(choice.method, choice.method)
    return f"{title} and proposals" if choice.alarms == "both" else title


def _script_file(run: Run) -> str:
    return f"dials/{run.name}.js"


def _script(item: RunChoices, results: AllResults) -> str:
    """The script with the data of a run.

    Raises:
        DataError: the data are absent or damaged.
    """
    files = RunFiles(item.run.name, item.run.benchmark, results.artifacts)
    data = read_typed(DialData, files.dial)
    content_of_run = to_jsonable_python(data)
    content_of_run["id_images"]["files"] = _urls(files, [data.id_split], data.id_images, results)
    content_of_run["ood_images"]["files"] = _urls(files, data.splits, data.ood_images, results)
    content_of_run.update(choices_of(item, data))
    run = as_script(item.run.name)
    return f"dial.add({run},{as_script(content_of_run)});\n"


def choices_of(item: RunChoices, data: DialData) -> dict[str, Any]:
    """What the page shows of a run beside its data: titles, stops of the limit, and a table.

    Args:
        item: The run and its choices; one was made.
        data: Its data.
    """
    choices = item.choices
    axis = choices.budget.dial_axis
    stops = [_stop(item, stop, data) for stop in choices.dial]
    limits = [stop.limit for stop in choices.dial]
    return {
        "titles": {name: item.titles.get(name, name) for name in data.methods},
        "unit": words.WORDS[axis].unit,
        "axis": axis,
        "stops": stops,
        "budget": limits.index(choices.budget.limits[axis]),
        "notes": [*words.reasons(choices, item.titles), *words.remarks(choices, item.titles)],
        "table": _methods_table(item),
    }


def _stop(item: RunChoices, stop: DialStop, data: DialData) -> dict[str, Any]:
    """A stop of the limit, as the page shows it."""
    choices = item.choices
    choice = stop.choice
    budget = choices.budget.with_limit(choices.budget.dial_axis, stop.limit)
    of_stop = replace(choices, budget=budget, choice=choice, too_few=stop.too_few)
    objectness = -1
    if choice.objectness is not None:
        objectness = data.objectness.index(choice.objectness)
    bars = {}
    for axis in BARS:
        measured = choice.measured[axis]
        bars[axis] = {"value": measured.value, "interval": measured.interval}
    return {
        "limit": stop.limit,
        "method": choice.method,
        "operating": data.operating.index(choice.operating),
        "tau": data.methods[choice.method].taus.index(choice.tau),
        "objectness": objectness,
        "status": _status(choice, stop.too_few),
        "verdict": _verdict(of_stop),
        "setting": words.setting_in_words(choice, item.titles),
        "bars": bars,
        "rows": list(_rows(of_stop)),
        "command": _command(item.run.name, budget),
    }


def _verdict(choices: DeployChoices) -> str:
    """Whether the limits of a choice hold, in words.

    Args:
        choices: Of one budget; a setting was chosen.
    """
    choice = choices.choice
    if choice is None:
        return ""
    if choices.too_few:
        return f"Too few images. {choices.too_few}"
    budget = choices.budget
    if not choice.reached:
        return "No setting keeps the limit: this is the closest."
    parts = []
    for axis in budget.limits:
        where_chosen = choice.chosen_on[axis]
        part = COUNTED[axis].format(count=f"{where_chosen.count:,} of {where_chosen.of:,}")
        if where_chosen.bound is not None:
            part += f" (upper bound {words.number(axis, where_chosen.bound)})"
        parts.append(part)
    return f"Holds {words.promise(budget)}: {words.enumerated(parts)}."


#: What was counted where a setting was chosen.
COUNTED = {
    "misclassified": "{count} unknown objects misclassified",
    "false_alarms": "{count} ID validation images with a false alarm",
    "recall_lost": "{count} known objects lost",
}


def _rows(choices: DeployChoices) -> Iterator[dict[str, str]]:
    """Rows of what a setting finds and costs: measure, value with its interval, n, and limit."""
    for row in words.axis_rows(choices):
        value = row["Held-out"]
        if row["95% interval"]:
            value += f" {row['95% interval']}"
        limit = row["Limit"]
        if limit:
            limit += f": {HELD_OUT[row[words.HELD_OUT]]}"
        yield {"measure": row["Measure"], "value": value, "n": row["n"], "limit": limit}


#: Whether a limit is met on held-out images, in words.
HELD_OUT = {"yes": "met", "no": "exceeded", "undecided": "undecided"}


def _command(run: str, budget: Budget) -> str:
    """The command that bundles what is chosen for a budget."""
    command = ["farther", "bundle", run, "deployed"]
    for axis, limit in budget.limits.items():
        command.append(f"--{LIMITS[axis].replace('_', '-')}={limit:g}")
    return shlex.join(command)


def _methods_table(item: RunChoices) -> dict[str, Any]:
    """The best setting of each method within the limits of the budget."""
    rows = []
    for name, choice in item.choices.methods.items():
        row = {
            "Method": item.titles.get(name, name),
            "t*": f"{choice.operating:.3f}",
            "τ": words.tau(choice),
            "Proposals": words.called(choice),
        }
        for axis in ("found", "misclassified", "false_alarms"):
            head = words.WORDS[axis].head
            row[head.capitalize()] = words.with_interval(axis, choice.measured[axis])
        row["Limit"] = STATUS[_status(choice, "")]
        rows.append(row)
    caption = (
        f"The best setting of each method for {words.limits(item.choices.budget)}, on held-out "
        "images."
    )
    listing = _listing(caption, rows)
    return {"caption": caption, "heads": listing.heads, "rows": [list(row) for row in listing.rows]}


def _listing(caption: str, rows: Sequence[Mapping[str, str]]) -> Listing:
    """A table; all columns but those of words are flush right."""
    numbers: list[str] = []
    if rows:
        numbers = [head for head in rows[0] if head not in TEXT_COLUMNS]
    return Listing.from_rows(caption, rows, numbers)


def _urls(
    files: RunFiles, splits: Sequence[str], images: DialImages, results: AllResults
) -> list[str | None]:
    """URL of the file of each image; None where params.yaml does not name its dataset's folder."""
    folders = {}
    for dataset, root in results.roots.items():
        folders[dataset] = folder_url(root, results.root)
    file_by_split = []
    for split in splits:
        frame = Images.read(files.images(split)).frame
        names, datasets, image_files = (frame[name] for name in ("image_id", "dataset", "file"))
        file_by_split.append(dict(zip(names, zip(datasets, image_files, strict=True), strict=True)))

    urls = []
    for name, split_number in zip(images.names, images.split_numbers, strict=True):
        dataset, file = file_by_split[split_number].get(name, ("", ""))
        url = None
        if dataset in folders:
            url = f"{folders[dataset]}/{quote(file)}"
        urls.append(url)
    return urls
