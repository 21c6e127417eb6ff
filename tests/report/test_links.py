"""Addresses of the gallery's page."""

from farther.report.all_results import AllResults
from farther.report.links import CellLinks, GalleryLinks, View, distance_of, of_part
from farther.report.outcomes import COVERED
from farther.report.results import read_runs
from farther.report.settings import ReportSettings

LINKS = GalleryLinks(
    "my net",
    "../",
    images={"far": 100, "near": 9000, "test": 50},
    limit=5000,
    distances={"far": "far", "near": "near"},
)


def test_an_address_names_its_filters_and_quotes_them():
    view = View("far", "msp", category="sea lion", predicted="a&b", outcomes=["found", "missed"])
    assert LINKS.to(view) == (
        "../gallery.html#run=my+net&split=far&method=msp&category=sea+lion&class=a%26b"
        "&outcome=found%2Cmissed"
    )


def test_a_number_is_in_the_address_where_the_gallery_has_a_part_of_the_images():
    assert "of=" not in LINKS.to(View("far", count=57))
    assert LINKS.to(View("near", count=57)).endswith("&of=57")
    assert LINKS.to(View("", count=57)).endswith("&of=57")


def test_all_splits_of_a_distance_have_one_name():
    assert LINKS.to(View(distance_of("near"))).endswith("split=distance%3Anear")
    assert LINKS.to(View(distance_of("farther"))) == ""


def test_without_images_there_is_no_link():
    empty = GalleryLinks("net", "")
    assert empty.to(View()) == ""
    assert empty.to(View("far")) == ""


def test_missed_objects_of_a_bar_are_uncovered_ones_where_the_run_has_proposals(make_run):
    run = make_run({"msp": {}})
    view = View("far", "msp")
    assert of_part(LINKS, view, "missed", run).endswith("outcome=missed")
    assert of_part(LINKS, view, COVERED, run).endswith("outcome=covered")


def test_a_cell_leads_to_what_its_metric_counts(built, params):
    runs = read_runs(params, built / "artifacts")
    links = CellLinks(AllResults(params, ReportSettings(), runs, built, {}, {}))
    cell = {"run": "pets-net", "split": "photos_far", "method": "msp", "value": 0.5}
    assert links.of_cell({**cell, "metric": "nose"}) == (
        "gallery.html#run=pets-net&split=photos_far&method=msp&outcome=misclassified"
    )
    assert "distance%3Afar" in links.of_cell({**cell, "split": "far", "metric": "r_u"})
    assert links.of_cell({**cell, "metric": "auroc"}) == ""
    assert links.of_cell({**cell, "metric": "nose", "value": None}) == ""
    assert links.of_cell({**cell, "metric": "nose", "run": "seeds"}) == ""
