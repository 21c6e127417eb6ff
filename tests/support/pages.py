"""Pages in a browser."""

from __future__ import annotations

from playwright.sync_api import Page


def until(page: Page, expression: str) -> None:
    """Waits until an expression is true in a page.

    `wait_for_function` would evaluate a text within the page, which the pages' policy forbids.
    """
    while not page.evaluate(expression):
        page.wait_for_timeout(10)
