"""Places of pages on a site."""

import pytest

from farther.report.navigation import Link, Navigation

FIRST = Link("index.html", "Overview", "What happens?")
METHODS = Link("methods.html", "Methods", "Which one?")
COMPARISONS = Link("across.html", "Comparisons", "How sure?")
DATA = Link("splits.html", "Data", "On what?")


@pytest.fixture
def navigation() -> Navigation:
    return Navigation(
        {
            "index.html": (FIRST,),
            "methods.html": (METHODS, COMPARISONS),
            "splits.html": (DATA,),
        },
        path=("index.html", "splits.html"),
    )


def test_a_page_of_a_section_is_below_the_section_and_the_first_page(navigation):
    place = navigation.place("across.html")
    assert place.section == "methods.html"
    assert place.below == (METHODS, COMPARISONS)
    assert place.above == (FIRST, METHODS)
    assert place.answers == "How sure?"


def test_the_only_page_of_a_section_has_no_pages_beside_it(navigation):
    place = navigation.place("splits.html")
    assert place.below == ()
    assert place.above == (FIRST,)


def test_the_path_leads_on_and_pages_beside_it_lead_to_the_next_of_all(navigation):
    assert navigation.place("index.html").following == DATA
    assert navigation.place("methods.html").following == COMPARISONS
    assert navigation.place("across.html").following == DATA
    assert navigation.place("splits.html").following == FIRST  # after the last, the first


def test_a_page_in_a_folder_leads_to_the_next_of_its_folder_then_on_from_its_parent(navigation):
    siblings = [Link("methods/msp.html", "MSP"), Link("methods/knn.html", "kNN")]
    first = navigation.place("methods/msp.html", siblings)
    assert first.above == (FIRST, METHODS)
    assert first.answers == ""
    assert first.following == siblings[1]
    assert navigation.place("methods/knn.html", siblings).following == COMPARISONS


def test_a_site_of_one_page_has_no_places():
    assert Navigation({}).place("index.html").following is None
