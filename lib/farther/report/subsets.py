"""Results by subsets: outcomes by size of objects and by attributes of images, such as weather."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from farther.datasets.image_attributes import BRIGHTNESS, BRIGHTNESS_VALUES
from farther.evaluation.results import MetricValues
from farther.metrics.matching.boxes import AREA_RANGES
from farther.report.linked_table import Cell, LinkedTable, Row
from farther.report.links import FALSE_ALARMS, GalleryLinks, View
from farther.report.listing import percent, rate
from farther.report.results import Run

#: The subsets of objects by their size.
SIZE = "size"

#: Order of the values of subsets that have one; others are in alphabetical order.
ORDERS = {SIZE: list(AREA_RANGES), BRIGHTNESS: [value for _, value in BRIGHTNESS_VALUES]}

#: Outcome of unknown objects → its count, and the share of it that has an interval.
OUTCOMES = {
    "found": ("tp_u", "r_u"),
    "misclassified": ("fn_misclassified", "nose"),
    "missed": ("fn_missed", "missed"),
}


def tables(run: Run, method: str, links: GalleryLinks) -> list[LinkedTable]:
    """Two tables per way to divide the images: of unknown objects, and of false alarms.

    Args:
        run: The run.
        method: The method whose outcomes they are.
        links: The page's links to the run.
    """
    linked_tables = []
    for name in _names(run, method):
        rows = list(_outcome_rows(run, method, name, links))
        if rows:
            linked_tables.append(
                LinkedTable(
                    f"Outcomes of unknown objects by {name} (%), {run.label(method)}; "
                    "in brackets 95% intervals.",
                    name.capitalize(),
                    ["objects", *OUTCOMES],
                    rows,
                )
            )
        alarms = _alarm_table(run, method, name, links)
        if alarms is not None:
            linked_tables.append(alarms)
    return linked_tables


def _names(run: Run, method: str) -> list[str]:
    """The ways to divide images and objects: the size, and attributes of images."""
    names = {SIZE: None}
    for split in run.splits:
        names.update(dict.fromkeys(run.details(split.name, method).by_attribute))
    names.update(dict.fromkeys(_costs_by_attribute(run, method)))
    return list(names)


def _outcome_rows(run: Run, method: str, name: str, links: GalleryLinks) -> Iterator[Row]:
    """One row per split and value."""
    for split in run.splits:
        details = run.details(split.name, method)
        outcomes_by_value: Mapping[str, MetricValues] = details.by_attribute.get(name, {})
        if name == SIZE:
            outcomes_by_value = details.by_size
        begins = split.title
        for value, outcomes in _ordered(name, outcomes_by_value):
            view = View(split.name, method, subset=f"{name}={value}")
            yield Row(value, _outcome_cells(outcomes, view, links), begins)
            begins = ""


def _outcome_cells(outcomes: MetricValues, view: View, links: GalleryLinks) -> Sequence[Cell]:
    objects = int(outcomes.values["unknown_objects"] or 0)
    cells = [Cell(f"{objects:,}", links.to(view.of((), objects)))]
    for outcome, (count_key, share_key) in OUTCOMES.items():
        count = int(outcomes.values[count_key] or 0)
        text = percent(count / objects if objects else None, outcomes.intervals.get(share_key))
        href = links.to(view.of([outcome], count)) if count else ""
        cells.append(Cell(text, href))
    return cells


def _alarm_table(run: Run, method: str, name: str, links: GalleryLinks) -> LinkedTable | None:
    """False alarms on ID images by the values of an attribute; None where they have none."""
    costs_by_value = _costs_by_attribute(run, method).get(name, {})
    if not costs_by_value or run.id_split is None:
        return None
    rows = []
    for value, costs in _ordered(name, costs_by_value):
        view = View(run.id_split, method, outcomes=FALSE_ALARMS, subset=f"{name}={value}")
        flagged = int(costs.values["flagged"] or 0)
        cells = [
            Cell(f"{costs.values['images']:,}"),
            Cell(f"{costs.values['id_regions']:,}"),
            Cell(
                percent(_fraction(costs, "id_flagged"), costs.intervals.get("id_flagged")),
                links.to(view) if flagged else "",
            ),
            Cell(rate(_fraction(costs, "false_alarms"))),
        ]
        rows.append(Row(value, cells))
    return LinkedTable(
        f"Detections in ID test images that are flagged as unknown, by {name}, "
        f"{run.label(method)}; in brackets 95% intervals.",
        name.capitalize(),
        ["images", "detections", "flagged (%)", "per image"],
        rows,
    )


def _ordered(
    name: str, results_by_value: Mapping[str, MetricValues]
) -> list[tuple[str, MetricValues]]:
    order = ORDERS.get(name, [])

    def place(item: tuple[str, MetricValues]) -> tuple[int, str]:
        value, _ = item
        return (order.index(value) if value in order else len(order), value)

    return sorted(results_by_value.items(), key=place)


def _fraction(costs: MetricValues, key: str) -> float | None:
    value = costs.values[key]
    return None if value is None else float(value)


def _costs_by_attribute(run: Run, method: str) -> Mapping[str, Mapping[str, MetricValues]]:
    if run.evaluation is None:
        return {}
    return run.evaluation.methods[method].costs_by_attribute
