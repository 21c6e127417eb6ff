"""Pages in a browser."""

from __future__ import annotations

from playwright.sync_api import Page


def until(page: Page, expression: str) -> None:
    """Waits until an expression is true in a page.

    `wait_for_function` would evaluate a text within the page, which the pages' policy forbids.

    Raises:
        AssertionError: it is still false after about a minute on an idle machine.
    """
    for _ in range(6000):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(10)
    raise AssertionError(f"never true: {expression}")
