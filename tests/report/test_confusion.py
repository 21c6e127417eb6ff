"""The confusion of a detector: every object once, and no number beside those of the evaluation."""

from collections import Counter

import pytest

from farther.evaluation.files import RunFiles
from farther.report.confusion import Confusion, Predictions
from farther.report.linked_table import LinkedTable
from farther.report.links import GalleryLinks
from farther.report.results import read_runs
from farther.tables import ObjectOutcomes, Regions

NO_LINKS = GalleryLinks("net", "")


@pytest.fixture
def run(built, params):
    return read_runs(params, built / "artifacts")[0]


def counts(table: LinkedTable) -> dict[str, dict[str, int]]:
    """Row → column → number, of the cells with a number."""
    numbers = {}
    for row in table.rows:
        texts = zip(table.columns, row.cells, strict=True)
        numbers[row.title] = {
            column: int(cell.text.replace(",", "")) for column, cell in texts if cell.text
        }
    return numbers


def table_of(confusion: Confusion, limit: int = 20) -> LinkedTable:
    table = confusion.table(NO_LINKS, "test", limit)
    assert table is not None
    return table


def test_unknown_objects_add_up_to_the_outcomes_of_the_evaluation(run, evaluated):
    files = RunFiles(run.name, run.benchmark, evaluated / "artifacts")
    for method in run.methods:
        outcomes: Counter[str] = Counter()
        expected: Counter[tuple[str, str]] = Counter()
        for split in run.splits:
            values = run.group(split.name, method, "open_set")
            for name in ("tp_u", "fn_misclassified", "fn_missed"):
                outcomes[name] += int(values[name].value or 0)
            objects = ObjectOutcomes.read(files.object_outcomes(method, split.name)).frame
            regions = Regions.read(files.regions(split.name))
            keys = zip(regions.image_id, regions.region_id, strict=True)
            class_by_region = {
                key: regions.classes[label] for key, label in zip(keys, regions.label, strict=True)
            }
            for row in objects.filter(outcome="misclassified").iter_rows(named=True):
                predicted = class_by_region[row["image_id"], row["region_id"]]
                expected[row["category"], predicted] += 1

        unknown = Confusion.of(run, method).unknown
        kept = {
            (category, name): count
            for category, predictions in unknown.items()
            for name, count in predictions.kept_as.items()
        }
        assert kept == expected
        assert sum(kept.values()) == outcomes["fn_misclassified"]
        assert sum(one.flagged for one in unknown.values()) == outcomes["tp_u"]
        assert sum(one.missed for one in unknown.values()) == outcomes["fn_missed"]


def test_known_objects_are_those_of_the_table_of_outcomes(run, evaluated):
    files = RunFiles(run.name, run.benchmark, evaluated / "artifacts")
    for method in run.methods:
        outcomes = ObjectOutcomes.read(files.object_outcomes(method, "test")).outcome.tolist()
        known = Confusion.of(run, method).known
        assert sum(one.objects for one in known.values()) == len(outcomes) == 20
        correct = sum(one.kept_as[category] for category, one in known.items())
        assert correct == outcomes.count("correct")
        assert sum(one.flagged for one in known.values()) == outcomes.count("flagged")
        assert sum(one.missed for one in known.values()) == outcomes.count("missed")


def test_rows_add_up_to_their_objects():
    confusion = Confusion(
        {"fox": Predictions(Counter(cat=2, dog=1), flagged=3, missed=4)},
        {"cat": Predictions(Counter(cat=5, dog=1), flagged=1)},
    )
    table = table_of(confusion)
    assert table.columns == ["objects", "cat", "dog", "unknown (flagged)", "missed"]
    assert counts(table) == {
        "fox": {"objects": 10, "cat": 2, "dog": 1, "unknown (flagged)": 3, "missed": 4},
        "cat": {"objects": 7, "cat": 5, "dog": 1, "unknown (flagged)": 1},
    }
    right = [[cell.is_right for cell in row.cells] for row in table.rows]
    assert right == [[False, False, False, True, False], [False, True, False, False, False]]
    assert [row.begins for row in table.rows] == [
        "Unknown, in OOD images",
        "Known, in ID test images",
    ]


def test_of_many_classes_those_with_most_confusions_are_shown_and_the_others_together():
    unknown = {}
    known = {}
    for number in range(2000):
        name = f"class {number:04}"
        known[name] = Predictions(Counter({name: 3}), missed=1)
        other = f"class {(number + 1) % 2000:04}"
        unknown[f"category {number:04}"] = Predictions(Counter({other: 1}), flagged=1)
    unknown["fox"] = Predictions(Counter({"class 1234": 9}))
    known["class 0777"] = Predictions(Counter({"class 1234": 4}), flagged=2)
    table = table_of(Confusion(unknown, known), limit=2)
    assert table.columns[1:4] == ["class 0777", "class 1234", "1,998 other classes"]
    numbers = counts(table)
    assert list(numbers) == [
        "fox",
        "category 0000",
        "1,999 other unknown categories",
        "class 0777",
        "class 1234",
        "1,998 other known classes",
    ]
    assert numbers["fox"]["class 1234"] == 9
    assert numbers["class 0777"] == {"objects": 6, "class 1234": 4, "unknown (flagged)": 2}
    for row in numbers.values():
        assert row["objects"] == sum(row.values()) - row["objects"]
    for part in (list(numbers)[:3], list(numbers)[3:]):
        objects = sum(numbers[name]["objects"] for name in part)
        assert objects in (4009, 4 * 1999 + 6)


def test_without_objects_there_is_no_matrix(make_run):
    assert Confusion.of(make_run({"msp": {}}), "msp").table(NO_LINKS, "test", 5) is None


def test_a_cell_leads_to_its_objects_and_no_number_to_nothing():
    links = GalleryLinks("net", "../", {"far": 10, "test": 10}, 10, {"far": "far"})
    confusion = Confusion(
        {"fox": Predictions(Counter(cat=2), flagged=3)},
        {"cat": Predictions(Counter(cat=5, dog=1), missed=1)},
    )
    table = confusion.table(links, "test", 5)
    assert table is not None
    hrefs = [[cell.href.partition("#run=net")[2] for cell in row.cells] for row in table.rows]
    assert hrefs == [
        [
            "&category=fox",
            "&category=fox&class=cat&outcome=misclassified",
            "",
            "&category=fox&outcome=found",
            "",
        ],
        [
            "&split=test&category=cat",
            "&split=test&category=cat&class=cat&outcome=correct",
            "&split=test&category=cat&class=dog&outcome=wrong+class",
            "",
            "&split=test&category=cat&outcome=missed",
        ],
    ]
