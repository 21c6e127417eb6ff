"""Comparisons of methods and of classifiers, and the names within their page."""

from dataclasses import replace

from farther.report.all_results import AllResults
from farther.report.documented import texts_of
from farther.report.listing import Listing
from farther.report.pages import methods
from farther.report.settings import ReportSettings
from farther.report.site import Site
from farther.tables.documents import read_json


def test_names_within_the_page_are_unique(seed_runs, make_run, tmp_path, read):
    other = make_run({"msp": {"auroc": 0.6, "fpr95": 0.7}, "knn": {"auroc": 0.5, "fpr95": 0.9}})
    runs = []
    for run in (*seed_runs[:2], replace(other, name="net-3")):
        runs.append(replace(run, title=run.name))
    texts = {name: texts_of(name, {}) for name in ("msp", "knn")}
    params = {"methods": {"msp": {}, "knn": {}}, "benchmarks": {"voc": {}}}
    results = AllResults(params, ReportSettings(), runs, tmp_path, {}, texts)
    table = Listing.from_rows("Means.", [{"Run": "net"}])
    content = {**methods.content(results), "means": [table], "errors": [table]}
    with Site(tmp_path / "site") as site:
        site.write("methods.html", **content)
    elements = read(tmp_path / "site/methods.html").elements
    names = [e.attributes["id"] for e in elements if "id" in e.attributes]
    assert {"ranks", "rank-by-auroc", "method-msp"} <= set(names)
    assert len(names) == len(set(names))


def test_the_page_has_means_over_splits_and_errors(built, read):
    page = read(built / "artifacts" / "report" / "methods.html")
    splits = "means over splits (near: photos_near (4 images); far: photos_far (2 images))"
    assert any(splits in text for text in page.texts("p"))
    # As worked out by hand for the tables: half of the near detections are below all ID ones, all
    # of the far ones are.
    assert "MSP 50.0 50.0 100.0 0.0" in page.texts("tr")
    assert read_json(built / "artifacts" / "seeds.json") == {}
