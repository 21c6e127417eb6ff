"""Wilderness beside the elephant's Tables 1 to 4."""

from pathlib import Path

import pytest

from farther.errors import DataError
from farther.report.published import FOLDER
from farther.report.published_wilderness import ElephantTables
from farther.report.settings import Counterpart

TABLES = ElephantTables.read(Path(__file__).parents[2] / FOLDER)
MEAN = {"f": [0.9, 0.8], "precision": [0.9, 0.8], "recall": [0.9, 0.8], "threshold": [0.5, 0.75]}
WILD = {
    "map_closed": 0.8,
    "map_open": None,
    "at_recall": {"0.1": {"average_impact": 0.03}},
    "background": {"known": {"classes": {"boat": {"mean": 0.5, "sd": 0.25}}}},
    "operating_points": {"ratios": [0.0, 1.0], "betas": {"1": {"classes": {"cow": MEAN}}}},
}


@pytest.fixture
def beside(make_run):
    def listings(detector, comparable=False, **changed):
        run = make_run({}, {"wilderness": WILD | changed})
        return list(TABLES.beside(run, Counterpart(detector=detector, id="voc", comparable=comparable)))

    return listings


def texts(listing):
    return [[text for text, _ in row] for row in listing.rows]


def test_each_value_is_beside_the_printed_one_with_the_difference(beside):
    tables = beside("faster_rcnn", comparable=True)
    assert [table.caption.split("Table ")[1][0] for table in tables] == ["1", "2", "3"]
    assert [head for head, _ in tables[0].heads][4:] == ["mAP closed difference", "mAP open difference"]
    assert texts(tables[0]) == [["80.0", "81.9", "—", "77.1", "-1.9", "—"]]
    assert texts(tables[1]) == [
        ["0.1", "3.0", "1.9", "+1.0"],
        ["0.3", "—", "3.8", "—"],
        ["0.5", "—", "9.7", "—"],
    ]
    boat = next(row for row in texts(tables[2]) if row[0] == "boat")
    assert boat == ["boat", "0.500", "0.387", "0.250", "0.684", "+0.113", "-0.434"]


def test_operating_points_are_those_of_the_printed_class_ratio_and_beta(beside):
    *_, points = beside("retinanet")
    rows = {(row[1], row[2]): row[3:] for row in texts(points)}
    assert rows["1", "1"] == ["80.0", "72.0", "80.0", "70.9", "80.0", "73.8", "0.750", "0.650"]
    assert rows["0", "1"][0] == "90.0"
    assert rows["1", "0.5"][0] == rows["4.25", "1"][0] == "—"
    assert "NOT comparable" in points.caption


def test_detectors_that_a_table_lacks_have_no_listing(beside):
    assert [len(beside(name)) for name in ("mask_rcnn", "yolov2", "dropout_sampling", "yolov8")] == [1, 2, 2, 0]
    background = beside("faster_rcnn", background=None)[2]
    assert {row[1] for row in texts(background)} == {"—"}
    assert ("retinanet", "voc") in TABLES.detectors


def test_absent_tables_are_empty_and_damaged_ones_are_named(tmp_path):
    assert ElephantTables.read(tmp_path).detectors == set()
    (tmp_path / "elephant_map.csv").write_text("detector,id,map_closed\nd,voc,0.5\n")
    with pytest.raises(DataError, match=r"elephant_map\.csv.*'map_open': there is no such column"):
        ElephantTables.read(tmp_path)
