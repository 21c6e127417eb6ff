"""The page of data: categories, similarity, and the outcome of each image."""

import shutil
from pathlib import Path

import pytest

from farther.errors import DataError
from farther.report import build
from farther.report.pages.data import splits_of
from farther.similarity import ImageSimilarity
from farther.tables.documents import write_json

HISTOGRAM = """split,similarity,fraction
test,0.91,1.0
photos_near,0.81,0.75
photos_near,0.83,0.25
photos_far,0.61,1.0
"""


@pytest.fixture
def measured(evaluated: Path, tmp_path: Path) -> Path:
    """The artifacts of a project whose similarity was measured."""
    root = tmp_path / "project"
    shutil.copytree(evaluated, root)
    folder = root / "artifacts/plots/similarity"
    folder.mkdir(parents=True)
    (folder / "pets.csv").write_text(HISTOGRAM)
    return root / "artifacts"


def values(chart) -> list[dict]:
    return chart.spec["data"]["values"]


def test_categories_are_counted_per_split(measured, params):
    view = splits_of("pets", params["benchmarks"]["pets"], measured, limit=20)
    by_title = {chart.title: values(chart) for chart in view["categories"].charts}
    assert by_title == {
        "photos far: 1 category": [{"category": "<b>Kite</b>", "objects": 2, "images": 2}],
        "photos near: 1 category": [{"category": "Lynx", "objects": 4, "images": 4}],
    }


def test_images_are_counted_by_fate_and_reason(measured, params):
    view = splits_of("pets", params["benchmarks"]["pets"], measured, limit=20)
    (chart,) = view["fates"].charts
    assert [(row["fate"], row["reason"], row["images"]) for row in values(chart)] == [
        ("near", "a near category is labelled", 4),
        ("far", "no near category is labelled", 2),
        ("removed", "an ID class is labelled", 1),
    ]
    assert [key.name for key in view["fates"].legend] == ["near", "far", "removed"]


def test_similarity_is_drawn_from_id_to_far_with_a_colour_a_distance(measured, params):
    view = splits_of("pets", params["benchmarks"]["pets"], measured, limit=20)
    (chart,) = view["similarity"].charts
    assert [key.name for key in view["similarity"].legend] == ["test", "photos near", "photos far"]
    assert len({key.colour for key in view["similarity"].legend}) == 3
    assert "test: 0.910; photos near: 0.815; photos far: 0.610" in chart.description
    near = [line for line in values(chart).splitlines() if line.startswith("photos near")]
    assert near == ["photos near,0,0.8100,0.7500", "photos near,1,0.8300,0.2500"]


def test_a_benchmark_that_was_not_curated_has_no_figures(tmp_path, params):
    view = splits_of("pets", params["benchmarks"]["pets"], tmp_path, limit=20)
    assert view["fates"] is view["similarity"] is view["categories"] is None


def test_a_damaged_histogram_is_refused_by_row(measured, params):
    file = measured / "plots/similarity/pets.csv"
    file.write_text(HISTOGRAM.replace("0.83", "wide"))
    with pytest.raises(
        DataError, match=r"pets\.csv: row 2: field 'similarity': expected a number, found 'wide'"
    ):
        splits_of("pets", params["benchmarks"]["pets"], measured, limit=20)


def test_similarity_is_told_in_numbers_from_id_to_far(measured, params):
    file = measured / "counts/similarity/pets.json"
    summary = {"images": 4, "median": 0.8, "low": 0.7, "high": 0.9, "elsewhere": 1}
    similarities = {"similarity": {"ID": 0.91}}
    for split, similarity in (("photos_far", 0.61), ("photos_near", 0.815), ("test", 0.91)):
        similarities[split] = {"similarity": similarity, **summary}
    write_json(file, similarities)
    view = splits_of("pets", params["benchmarks"]["pets"], measured, limit=20)
    table, _ = view["similarity_tables"]
    assert [tuple(text for text, _ in row[:4]) for row in table.rows] == [
        ("test", "ID", "4", "0.910"),
        ("photos near", "near", "4", "0.815"),
        ("photos far", "far", "4", "0.610"),
    ]


def test_the_most_doubtful_images_are_listed(measured, params):
    doubtful = {
        "image_id": ["f1", "f2"],
        "dataset": ["photos", "photos"],
        "split": ["photos_far", "photos_far"],
        "distance": ["far", "far"],
        "suggested": ["near", "near"],
        "similarity": [0.8123, 0.7],
        "margin": [0.25, 0.1],
        "neighbour": ["train3", "train4"],
        "id_class": ["cat", "dog"],
        "class_similarity": [0.5, 0.5],
    }
    ImageSimilarity(**doubtful).write(measured / "similarity/pets/borderline.parquet")
    view = splits_of("pets", params["benchmarks"]["pets"], measured, limit=1)
    _, table = view["similarity_tables"]
    (row,) = table.rows
    texts = [text for text, _ in row]
    assert texts[:4] == ["f1", "photos_far", "far", "near"]
    assert texts[4:] == ["train3", "cat", "0.812", "0.250"]


def test_the_page_shows_the_figures_even_before_anything_is_evaluated(measured, params, read):
    params["detectors"] = {}
    build(params, measured.parent)
    charts = read(measured / "report" / "data.html").charts()
    assert set(charts) == {"images-1-1", "similarity-1-1", "categories-1-1", "categories-1-2"}
    assert charts["images-1-1"]["data"]["values"][0]["images"] == 4
