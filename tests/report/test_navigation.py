"""Places of pages on a site."""

import pytest

from farther.report.navigation import LINKED, Link, Navigation

FIRST = Link("index.html", "Overview", "What happens?")
ENTRY = Link("detectors/a.html", "Detectors", "What does it do?")
DETECTORS = (Link("detectors/a.html", "A", "What does it do?"), Link("detectors/b.html", "B"))
METHODS = Link("methods.html", "Methods", "Which one?")
PAPERS = Link("papers.html", "Papers", "How do others print it?")
PAPER = Link("papers/fmiyc.html", "FMIYC", "How does this one?")


@pytest.fixture
def navigation() -> Navigation:
    return Navigation((FIRST, ENTRY, METHODS, PAPERS), {"detectors": DETECTORS, "papers": (PAPER,)})


def test_a_page_that_every_page_links_is_its_own_entry(navigation):
    place = navigation.place("methods.html")
    assert place.entry == "methods.html"
    assert place.siblings == ()
    assert place.answers == "Which one?"


def test_the_pages_of_a_folder_are_beside_each_other(navigation):
    for page in DETECTORS:
        place = navigation.place(page.file)
        assert place.entry == "detectors/a.html"
        assert place.siblings == DETECTORS


def test_the_only_page_of_a_folder_has_no_pages_beside_it(navigation):
    place = navigation.place("papers/fmiyc.html")
    assert place.entry == "papers.html"
    assert place.siblings == ()


def test_one_of_many_pages_links_those_beside_it_and_a_list_of_all():
    pages = tuple(Link(f"detectors/{number}.html", str(number)) for number in range(LINKED + 1))
    entries = (FIRST, pages[0])
    listings = {"detectors": "compare.html#runs"}
    navigation = Navigation(entries, {"detectors": pages}, listings)
    for number, neighbours in ((0, pages[:2]), (7, pages[6:9]), (LINKED, pages[-2:])):
        place = navigation.place(pages[number].file)
        assert place.siblings == neighbours
        assert place.listed == "compare.html#runs"

    few = Navigation(entries, {"detectors": pages[:-1]}, listings)
    assert few.place(pages[3].file).siblings == pages[:-1]
    assert few.place(pages[3].file).listed == ""


def test_pages_lead_through_folders_and_the_last_one_to_the_first(navigation):
    visited = ["index.html"]
    while len(visited) < 7:
        visited.append(navigation.place(visited[-1]).following.file)
    assert visited == [
        "index.html",
        "detectors/a.html",
        "detectors/b.html",
        "methods.html",
        "papers.html",
        "papers/fmiyc.html",
        "index.html",
    ]
    # The link to the first page of a folder has its own title, not that of the entry.
    assert navigation.place("index.html").following.title == "A"
    assert navigation.files == set(visited)


def test_a_page_that_is_not_on_the_site_has_no_place(navigation):
    assert navigation.place("elsewhere.html").entry == ""


def test_a_site_of_one_page_has_no_places():
    assert Navigation().place("index.html").following is None
