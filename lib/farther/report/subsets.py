"""Results by subsets: outcomes by size of objects and by attributes of images, such as weather."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from farther.datasets.image_attributes import BRIGHTNESS, BRIGHTNESS_VALUES, RESERVED
from farther.evaluation.long_table import Results
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
    for name in _names(run):
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


def _names(run: Run) -> list[str]:
    """The ways to divide images and objects: the size, and attributes of images.

    Whole images, which classifiers see, are not divided by size.
    """
    table = run.results.table
    attributes = [key for key in table.part_keys("open_set") if key not in RESERVED]
    names = dict.fromkeys([*attributes, *table.part_keys("costs")])
    if run.whole_images:
        return list(names)
    return [SIZE, *names]


def _outcome_rows(run: Run, method: str, name: str, links: GalleryLinks) -> Iterator[Row]:
    """One row per split and value."""
    for split in run.splits:
        table = run.results.table
        outcomes_by_value = table.by_part("open_set", name, split=split.name, method=method)
        begins = split.title
        for value, outcomes in _ordered(name, outcomes_by_value):
            view = View(split.name, method, subset=f"{name}={value}")
            yield Row(value, _outcome_cells(outcomes, view, links), begins)
            begins = ""


def _outcome_cells(outcomes: Results, view: View, links: GalleryLinks) -> Sequence[Cell]:
    objects = int(outcomes["unknown_objects"].value or 0)
    cells = [Cell(f"{objects:,}", links.to(view.of((), objects)))]
    for outcome, (count_key, share_key) in OUTCOMES.items():
        count = int(outcomes[count_key].value or 0)
        text = percent(count / objects if objects else None, outcomes[share_key].interval)
        href = links.to(view.of([outcome], count)) if count else ""
        cells.append(Cell(text, href))
    return cells


def _alarm_table(run: Run, method: str, name: str, links: GalleryLinks) -> LinkedTable | None:
    """False alarms on ID images by the values of an attribute; None where they have none."""
    if run.id_split is None:
        return None
    costs_by_value = run.results.table.by_part("costs", name, split=run.id_split, method=method)
    if not costs_by_value:
        return None
    rows = []
    for value, costs in _ordered(name, costs_by_value):
        view = View(run.id_split, method, outcomes=FALSE_ALARMS, subset=f"{name}={value}")
        flagged = int(costs["flagged"].value or 0)
        cells = [
            Cell(f"{costs['images'].value:,}"),
            Cell(f"{costs['id_regions'].value:,}"),
            Cell(
                percent(costs["id_flagged"].value, costs["id_flagged"].interval),
                links.to(view) if flagged else "",
            ),
            Cell(rate(costs["false_alarms"].value)),
        ]
        rows.append(Row(value, cells))
    return LinkedTable(
        f"Detections in ID test images that are flagged as unknown, by {name}, "
        f"{run.label(method)}; in brackets 95% intervals.",
        name.capitalize(),
        ["images", "detections", "flagged (%)", "per image"],
        rows,
    )


def _ordered(name: str, results_by_value: Mapping[str, Results]) -> list[tuple[str, Results]]:
    order = ORDERS.get(name, [])

    def place(item: tuple[str, Results]) -> tuple[int, str]:
        value, _ = item
        return (order.index(value) if value in order else len(order), value)

    return sorted(results_by_value.items(), key=place)
