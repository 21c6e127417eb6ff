"""The report as a site: it opens from disk, leads somewhere, and can be read by everybody."""

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.support.messages import OUTSIDE

from farther.errors import DataError
from farther.incremental.keyed import Keyed
from farther.report import build
from farther.report.gallery.data import SplitData
from farther.report.pages import PAGES as REPORT_PAGES
from farther.report.pages import Page
from farther.report.site import Site
from farther.tables import RegionOutcomes

ALWAYS = Page._field_defaults["applies"]
#: Pages that need more, such as two runs, proposals, or a profile of a paper.
FOR_MORE = tuple(page.file for page in REPORT_PAGES if page.applies is not ALWAYS)
#: Pages of a project with one evaluated run, without proposals and without papers.
PAGES = [page.file for page in REPORT_PAGES if page.file not in FOR_MORE]
PAGES.insert(1, "detectors/pets-net.html")

#: Pages of a project with all of these, in the order of reading.
ALL_PAGES = [page.file for page in REPORT_PAGES]
ALL_PAGES[1:1] = ["detectors/pets-net.html", "detectors/pets-later.html"]
ALL_PAGES += [
    f"papers/{name}.html" for name in ("fmiyc", "saod", "elephant", "realistic", "openood")
]


@pytest.fixture(params=[*(f"one {name}" for name in PAGES), *(f"two {name}" for name in ALL_PAGES)])
def file(request, report, report_of_two) -> Path:
    """A page of the report of one run, then of the report that has all pages."""
    runs, name = request.param.split()
    return {"one": report, "two": report_of_two}[runs] / name


@pytest.fixture
def page(file, read):
    return read(file)


def pages_of(report: Path) -> list[str]:
    """The pages of a report, by name."""
    return sorted(file.relative_to(report).as_posix() for file in report.rglob("*.html"))


def test_a_project_has_the_pages_that_apply_to_it(report, report_of_two):
    assert pages_of(report) == sorted(PAGES)
    assert pages_of(report_of_two) == sorted(ALL_PAGES)


def test_absent_pages_are_not_named(report):
    for name in PAGES:
        text = (report / name).read_text(encoding="utf-8")
        for absent in (*FOR_MORE, "papers/"):
            assert absent not in text, name


def test_a_page_loads_and_links_nothing_but_files_of_its_report(page, file, report, report_of_two):
    (root,) = [folder for folder in (report, report_of_two) if file.is_relative_to(folder)]
    for element in page.elements:
        for attribute in ("src", "href"):
            address = element.attributes.get(attribute) or "#"
            if address.startswith(("#", "data:")) or (
                element.tag == "a" and address.startswith("https://")
            ):
                continue
            if address == "times.js":
                continue  # not on a machine that has timed nothing
            target = (file.parent / unquote(address.partition("#")[0])).resolve()
            assert target.is_file(), address
            assert target.is_relative_to(root.resolve())
    assert not [
        script for script in page.all("script") if script.attributes.get("type") == "module"
    ]


def test_styles_and_scripts_fetch_nothing(report):
    for file in (report / "assets").iterdir():
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".css":
            assert "url(" not in text
            assert "@import" not in text
        elif file.name != "vega.js":
            assert "fetch(" not in text
            assert "XMLHttpRequest" not in text


def linear(part: float) -> float:
    """A channel of sRGB, 0 to 1, as linear intensity."""
    if part <= 0.04045:
        return part / 12.92
    return ((part + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    red, green, blue = (linear(int(colour[k : k + 2], 16) / 255) for k in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_words_can_be_told_from_their_ground_in_light_and_in_dark(report):
    styles = (report / "assets" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", styles, flags=re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks)
    pairs = [
        (ink, ground) for ink in ("ink", "soft", "accent") for ground in ("paper", "wash", "hover")
    ]
    for colours in (light, light | dark):
        for ink, ground in [*pairs, ("warn", "warn-wash")]:
            low, high = sorted((luminance(colours[ink]), luminance(colours[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_the_plotting_library_is_there_once(report):
    assert [file.name for file in report.rglob("*.js") if file.stat().st_size > 500_000] == [
        "vega.js"
    ]


def test_identifiers_are_unique_and_links_within_a_page_lead_somewhere(page):
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
        assert head.attributes["scope"] in ("row", "rowgroup", "col", "colgroup")
    labelled = {label.attributes.get("for") for label in page.all("label")}
    for field in [*page.all("select"), *page.all("input")]:
        assert (
            field.attributes.get("id") in labelled
            or "label" in field.inside
            or "form" in field.inside
        )
    assert page.all("html")[0].attributes["lang"] == "en"


def test_headings_do_not_skip_a_level(page):
    levels = [int(e.tag[1]) for e in page.elements if e.tag in ("h1", "h2", "h3", "h4", "h5")]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_links_between_pages_lead_to_a_place_on_them(page, file, read):
    for link in page.all("a"):
        address, _, anchor = link.attributes["href"].partition("#")
        # An anchor with "=" is the state of the gallery.
        if address.startswith("https:") or not address or not anchor or "=" in anchor:
            continue
        linked = read(file.parent / unquote(address))
        ids = [element.attributes.get("id") for element in linked.elements]
        assert unquote(anchor) in ids, link.attributes["href"]


@pytest.mark.parametrize(
    ("name", "current"),
    [
        ("index.html", ["index.html"]),
        ("compare.html", ["compare.html"]),
        ("detectors/pets-net.html", ["../detectors/pets-net.html", "../detectors/pets-net.html"]),
        (
            "detectors/pets-later.html",
            ["../detectors/pets-net.html", "../detectors/pets-later.html"],
        ),
        ("papers/saod.html", ["../papers.html", "../papers/saod.html"]),
    ],
)
def test_the_navigation_says_where_one_is(read, report_of_two, name, current):
    page = read(report_of_two / name)
    links = [element for element in page.all("a") if "nav" in element.inside]
    assert [element.text for element in links][:10] == [
        "Overview",
        "Detectors",
        "Compare",
        "Methods",
        "Missed",
        "Deploy",
        "Data",
        "Gallery",
        "Provenance",
        "Papers",
    ]
    currents = [e.attributes["href"] for e in links if "aria-current" in e.attributes]
    assert currents == current


def test_the_only_detector_has_an_entry_of_its_own(read, report):
    links = [element for element in read(report / "index.html").all("a") if "nav" in element.inside]
    assert [element.text for element in links] == [
        "Overview",
        "Detector",
        "Methods",
        "Deploy",
        "Data",
        "Gallery",
        "Provenance",
    ]


def test_each_page_begins_with_what_it_answers_and_leads_to_the_page_that_follows(page):
    (lead,) = [e for e in page.all("div") if e.attributes.get("class") == "lead"]
    assert len(lead.text.split()) > 3
    outside = [element for element in page.all("a") if "nav" not in element.inside]
    links = [element for element in outside if element.attributes.get("class") != "skip"]
    assert links[0].attributes.get("rel") == links[-1].attributes.get("rel") == "next"
    assert links[0].attributes["href"] == links[-1].attributes["href"]


def test_the_first_link_of_each_page_leads_through_all_pages(read, report, report_of_two):
    """What happens, which method, what to deploy, on which data."""
    for folder, pages in ((report, PAGES), (report_of_two, ALL_PAGES)):
        file = folder / "index.html"
        visited = []
        while len(visited) < len(pages):
            visited.append(file.relative_to(folder).as_posix())
            links = read(file).all("a")
            following = next(link for link in links if link.attributes.get("rel") == "next")
            file = Path(os.path.normpath(file.parent / following.attributes["href"]))
        assert visited == pages
        assert file == folder / "index.html"


def test_names_from_datasets_are_text_and_never_markup(report, read):
    page = read(report / "detectors" / "pets-net.html")
    assert not [e for e in page.all("b") if "Kite" in e.text]
    assert [e for e in page.all("text") if e.text == "<b>Kite</b>"]


def test_a_page_that_would_leave_the_report_is_refused(tmp_path):
    site = Site(tmp_path / "site")
    with pytest.raises(DataError, match=OUTSIDE):
        site.write_text("../elsewhere.js", "")


def test_a_file_is_kept_as_long_as_its_key_is_the_same(tmp_path):
    def text_of(folder: str, key: str, text: str, earlier: str = "") -> str:
        """The text of a file of a site that follows an earlier one."""
        earlier_site = Keyed(tmp_path / earlier) if earlier else None
        with Site(tmp_path / folder, earlier=earlier_site) as site:
            site.keep("data/one.js", key, lambda: text)
        Keyed(tmp_path / folder).record_all(site.keys)
        return (tmp_path / folder / "data/one.js").read_text()

    assert text_of("first", "a", "one") == "one"
    assert text_of("second", "a", "two", earlier="first") == "one"
    assert text_of("third", "b", "two", earlier="second") == "two"


@pytest.fixture
def made(monkeypatch):
    """Names of the methods whose data of the gallery was made; "shared" for what methods share."""
    names = []
    method, shared = SplitData.method, SplitData.shared

    def noted_method(self, name):
        names.append(name)
        return method(self, name)

    def noted_shared(self):
        names.append("shared")
        return shared(self)

    monkeypatch.setattr(SplitData, "method", noted_method)
    monkeypatch.setattr(SplitData, "shared", noted_shared)
    return names


def test_data_of_the_gallery_is_kept_from_one_report_to_the_next_until_outcomes_or_code_change(
    built, params, tmp_path, made
):
    shutil.copytree(built, tmp_path / "project")
    folder = tmp_path / "project/artifacts/report"

    def build_again(code):
        made.clear()
        build(params, tmp_path / "project", code=code)
        return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    first = build_again("1")
    assert "shared" in made
    assert build_again("1") == first
    assert made == []
    for file in (tmp_path / "project/artifacts/outcomes/pets-net/msp").glob("photos_near.parquet"):
        RegionOutcomes.read(file)[::-1].write(file)
    build_again("1")
    assert made == ["msp"]
    assert build_again("2").keys() == first.keys()
    assert made.count("msp") == made.count("shared") == 3  # splits, with the ID images


def test_a_file_of_the_gallery_that_was_replaced_is_made_again(built, params, tmp_path):
    shutil.copytree(built, tmp_path / "project")
    build(params, tmp_path / "project", code="1")
    scripts = sorted((tmp_path / "project/artifacts/report/gallery").rglob("msp.js"))
    before = [file.read_bytes() for file in scripts]
    assert before[0] != before[1]
    shutil.copy(scripts[0], scripts[1])
    build(params, tmp_path / "project", code="1")
    assert [file.read_bytes() for file in scripts] == before
