"""Folded sections in a real browser: an address that names one opens it."""

import pytest
from tests.support.pages import until

OPEN = "[...document.querySelectorAll('details[open]')].map((fold) => fold.id)"


@pytest.fixture
def methods(tab, report, complaints):
    tab.goto((report / "methods.html").as_uri())
    yield tab
    assert complaints() == []


def test_a_link_on_the_page_opens_the_section_of_a_method(methods):
    assert methods.evaluate(OPEN) == []
    methods.evaluate("document.querySelector('a[href=\"methods.html#method-knn\"]').click()")
    until(methods, f"{OPEN}.join() === 'method-knn'")


def test_an_address_opens_the_section_of_a_method(methods, report):
    methods.goto((report / "index.html").as_uri())
    methods.goto(f"{(report / 'methods.html').as_uri()}#method-msp")
    until(methods, f"{OPEN}.join() === 'method-msp'")
    top = "document.getElementById('method-msp').getBoundingClientRect().top"
    until(methods, f"{top} >= 0 && {top} < window.innerHeight")  # the page scrolls after it opened
