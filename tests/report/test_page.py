"""The page: what a reader finds on it, and that it needs nothing but itself."""

import base64
import io
import json
import shutil
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from farther.errors import ParameterError
from farther.report import build, charts
from farther.report.examples import Mark
from farther.report.results import read_runs
from farther.tables.files import digest

VOID = {"meta", "link", "input", "img", "br", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: tuple[str, ...] = ()


class Page(HTMLParser):
    """All elements of a page, in order; refuses elements that are closed in the wrong order."""

    def __init__(self, file: Path):
        super().__init__(convert_charrefs=True)
        self.source = file.read_text(encoding="utf-8")
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(self.source)
        assert not self._open, f"never closed: {[e.tag for e in self._open]}"

    def handle_starttag(self, tag, attributes):
        element = Element(tag, dict(attributes), inside=tuple(e.tag for e in self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append(Element(tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data):
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]


@pytest.fixture(scope="session")
def page(built: Path) -> Page:
    return Page(built / "artifacts" / "report" / "index.html")


def specs(page: Page) -> dict[str, dict]:
    written = [e for e in page.all("script") if e.attributes.get("type") == "application/json"]
    return {e.attributes["id"]: json.loads(e.text) for e in written}


# ------------------------------------------------------------------------------------------- a page that stands alone


def test_the_page_loads_nothing_from_elsewhere(page, built):
    folder = built / "artifacts" / "report"
    for element in page.elements:
        assert "src" not in element.attributes
        href = element.attributes.get("href", "#overview")
        if not href.startswith(("#", "data:")):
            assert (folder / href).is_file(), href
    styles = "".join(element.text for element in page.all("style"))
    assert "url(" not in styles
    assert "@import" not in styles


def test_identifiers_are_unique_and_links_within_the_page_lead_somewhere(page):
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        if link.attributes["href"].startswith("#"):
            assert link.attributes["href"][1:] in ids


def test_everything_that_is_seen_has_words_for_those_who_do_not_see_it(page):
    for picture in [e for e in page.elements if e.attributes.get("role") == "img"]:
        assert len(picture.attributes["aria-label"]) > 10
    for table in page.all("table"):
        assert table.attributes["aria-label"]
    for head in page.all("th"):
        assert head.attributes["scope"] in ("row", "col", "colgroup")
    assert page.all("html")[0].attributes["lang"] == "en"


def test_headings_do_not_skip_a_level(page):
    levels = [int(e.tag[1]) for e in page.elements if e.tag in ("h1", "h2", "h3", "h4", "h5")]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_names_from_datasets_are_text_and_never_markup(page):
    assert not [e for e in page.all("b") if "Kite" in e.text]
    assert [e for e in page.all("text") if e.text == "<b>Kite</b>"]


def test_the_same_inputs_give_the_same_bytes(built, params, tmp_path):
    shutil.copytree(built, tmp_path / "again")
    before = {p.name: digest(p) for p in (built / "artifacts" / "report").rglob("*.*")}
    build(params, tmp_path / "again")
    assert before == {p.name: digest(p) for p in (tmp_path / "again" / "artifacts" / "report").rglob("*.*")}


# --------------------------------------------------------------------------------------------------- what stands on it


def test_the_tables_hold_the_figures_and_mark_the_best(page):
    cells = [e.text for e in page.all("td") if e.inside[-3:] == ("table", "tbody", "tr")]
    assert cells.count("25.0") >= 2
    assert [e.text for e in page.all("strong")].count("100.0") >= 2


def test_methods_that_do_not_apply_are_named_with_the_reason(page):
    items = [e.text for e in page.all("li")]
    assert any("LaRD (kNN)" in text and "needs latent" in text for text in items)


def test_a_run_without_figures_is_named(page):
    assert [e for e in page.all("p") if "Not evaluated: pets-later" in e.text]


def test_curation_is_told_split_by_split_and_rule_by_rule(page):
    rows = [e.text.split("\n") for e in page.all("tr")]
    shown = ["|".join(part.strip() for part in row if part.strip()) for row in rows]
    assert any("photosnear: a near category is labelled4" in text.replace("|", "") for text in shown)
    assert any("photosID class: Cat → cat1" in text.replace("|", "") for text in shown)


def test_what_became_of_unknown_objects_is_drawn_from_the_counts(page):
    rows = specs(page)["fates-1"]["data"]["values"]
    near = {row["fate"]: row["objects"] for row in rows if row["split"] == "photos near"}
    assert near == {"found and flagged as unknown": 1, "taken for a known class": 1, "ignored": 2}
    assert sum(row["share"] for row in rows if row["split"] == "photos far") == pytest.approx(1)


def test_families_are_averaged_over_their_methods(page, built, params):
    run = read_runs(params, built / "artifacts")[0]
    rows = specs(page)["family-1"]["data"]["values"]
    outputs = [run.value("photos_near", method, "auroc") for method in ("msp", "energy")]
    by_place = {(row["split"], row["family"]): row for row in rows}
    assert by_place["photos near", "output"]["value"] == pytest.approx(sum(outputs) / 2)
    assert by_place["photos near", "output"]["methods"] == 2
    assert {family for _, family in by_place} == {"output", "feature"}


def test_every_figure_is_a_specification_that_vega_lite_draws(page):
    import vl_convert

    drawn = specs(page)
    assert len(drawn) == len([e for e in page.all("div") if "data-spec" in e.attributes]) >= 1 + 6 + 6 + 4
    for name in ("fates-1", "methods-1-3", "curves-1-1"):
        svg = vl_convert.vegalite_to_svg({**drawn[name], "width": 300})
        assert svg.startswith("<svg")


def test_curves_keep_their_ends_and_no_more_points_than_asked_for(built, params):
    run = read_runs(params, built / "artifacts")[0]
    made = charts.curves(run, built / "artifacts" / "plots" / "pets-net", count=1, points=5)
    roc = made.charts[0].spec["data"]["values"].splitlines()
    assert 2 < len(roc) <= 6
    assert roc[1].endswith(",0,0.0000,0.0000")
    assert roc[-1].endswith("1.0000,1.0000")
    assert len(made.legend) == 1


# ------------------------------------------------------------------------------------------------------------ pictures


def pictures(page: Page) -> dict[str, Element]:
    return {e.attributes["aria-label"].split(".")[0].removeprefix("Image "): e for e in page.all("svg")}


def test_pictures_alternate_between_found_misclassified_and_ignored(page):
    assert list(pictures(page)) == ["n1", "n2", "n3", "f1", "f2"]


def test_a_picture_says_what_is_there_and_what_was_made_of_it(page):
    labels = {name: e.attributes["aria-label"] for name, e in pictures(page).items()}
    assert labels["n1"] == "Image n1. ground truth: Lynx; flagged as unknown: ? cat 70%."
    assert labels["n2"] == "Image n2. ground truth: Lynx; kept as known: cat 100%."
    assert labels["n3"] == "Image n3. ground truth: Lynx."


def test_thumbnails_are_small_jpegs_of_the_images(page):
    pictures = [e.attributes["href"] for e in page.all("image")]
    for source in pictures:
        with Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/jpeg;base64,")))) as image:
            assert image.size == (64, 48)


def test_images_that_are_not_on_this_machine_are_passed_over(built, params, tmp_path):
    root = tmp_path / "elsewhere"
    shutil.copytree(built, root)
    (root / "photos" / "n1.jpg").unlink()
    Image.new("RGB", (10, 10)).save(root / "photos" / "n2.jpg")
    assert list(pictures(Page(build(params, root)))) == ["n3", "n4", "f1", "f2"]


@pytest.mark.parametrize(("left", "top"), [(0, 0), (90, 0), (0, 90), (90, 90)])
@pytest.mark.parametrize("kind", ["truth", "known"])
def test_a_label_never_leaves_its_picture(kind, left, top):
    mark = Mark(kind, left, top, 10, 10, "a long name")
    size = 5.0
    assert 0 <= mark.plate_left(100, size) <= 100 - mark.plate_width(size)
    assert 0 <= mark.plate_top(100, size) <= 100 - 1.35 * size + 0.05


# ---------------------------------------------------------------------------------------------------------- parameters


def test_building_again_drops_the_tables_of_runs_that_are_gone(built, params, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(built, root)
    tables = root / "artifacts" / "report" / "tables"
    assert (tables / "pets-net-ood.tex").exists()
    del params["detectors"]["pets-net"]
    page = Page(build(params, root))
    assert sorted(p.name for p in tables.iterdir()) == ["results.csv"]
    assert [e for e in page.all("p") if "Nothing has been evaluated yet" in e.text]


def test_without_the_evaluation_s_details_the_tables_still_stand(built, params, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(built, root)
    shutil.rmtree(root / "artifacts" / "evaluation")
    page = Page(build(params, root))
    assert [e for e in page.all("td") if e.text == "25.0"]
    assert not pictures(page)


@pytest.mark.parametrize(
    ("report", "message"),
    [({"pictures": 3}, "unknown parameter 'pictures'. Known: title"), ({"method": "vim"}, "has no method 'vim'")],
)
def test_a_wrong_parameter_is_refused_in_plain_words(built, params, report, message):
    with pytest.raises(ParameterError, match=message):
        build({**params, "report": report}, built)
