"""Folded sections in a real browser: an address that names one opens it."""

import pytest

OPEN = "[...document.querySelectorAll('details[open]')].map((fold) => fold.id)"


@pytest.fixture
def methods(browser, report):
    browser.open((report / "methods.html").as_uri())
    yield browser
    assert browser.complaints() == []


def test_a_link_on_the_page_opens_the_section_of_a_method(methods):
    assert methods.read(OPEN) == []
    methods.read("document.querySelector('a[href=\"methods.html#knn\"]').click()")
    methods.until(f"{OPEN}.join() === 'knn'")


def test_an_address_opens_the_section_of_a_method(methods, report):
    methods.open((report / "index.html").as_uri())
    methods.open(f"{(report / 'methods.html').as_uri()}#msp")
    methods.until(f"{OPEN}.join() === 'msp'")
    top = "document.getElementById('msp').getBoundingClientRect().top"
    assert 0 <= methods.read(top) < methods.read("window.innerHeight")
