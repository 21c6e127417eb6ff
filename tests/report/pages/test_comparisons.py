"""Comparisons of methods and of classifiers, and the names within their page."""

from farther.report.all_results import AllResults
from farther.report.documented import texts_of
from farther.report.listing import Listing
from farther.report.pages import methods
from farther.report.settings import ReportSettings
from farther.report.site import Site
from farther.tables.documents import read_json


def test_names_within_the_page_are_unique(seed_runs, make_run, tmp_path, read):
    runs = [*seed_runs, make_run({"msp": {"auroc": 0.6}, "knn": {"auroc": 0.5}})]
    texts = {name: texts_of(name, {}) for name in ("msp", "knn")}
    params = {"methods": {"msp": {}, "knn": {}}, "benchmarks": {"voc": {}}}
    results = AllResults(params, ReportSettings(), runs, tmp_path, {}, texts)
    table = Listing.from_rows("Means.", [{"Run": "net"}])
    content = {**methods.content(results), "means": [table], "errors": [table]}
    with Site(tmp_path / "site") as site:
        site.write("methods.html", **content)
    elements = read(tmp_path / "site/methods.html").elements
    names = [e.attributes["id"] for e in elements if "id" in e.attributes]
    assert {"ranks", "rank-by-auroc", "correlations", "msp"} <= set(names)
    assert len(names) == len(set(names))


def test_the_page_has_means_over_splits_and_errors(built, read):
    page = read(built / "artifacts" / "report" / "methods.html")
    splits = "means over splits (near: photos_near (4 images); far: photos_far (2 images))"
    assert any(splits in text for text in page.texts("p"))
    # As worked out by hand for the tables: half of the near detections are below all ID ones, all
    # of the far ones are.
    cells = page.texts("td")
    position = cells.index("50.0", cells.index("Means"))
    assert read_json(built / "artifacts" / "seeds.json") == {}
