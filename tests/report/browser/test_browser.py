"""The browser that tests use: a page of one test never shares anything with that of another."""

from pathlib import Path


def test_errors_of_a_page_never_reach_a_later_one(chromium, tmp_path: Path):
    broken = tmp_path / "broken.html"
    # Errors are on their way when the page is left.
    broken.write_text(
        "<script>for (let k = 0; k < 50; k += 1) new Image().src = `missing-${k}.png`;</script>"
    )
    for _ in range(5):
        with chromium.page() as first:
            first.open(broken.as_uri())
        with chromium.page() as second:
            second.open("about:blank")
            assert second.complaints() == []


def test_what_a_page_stores_never_reaches_a_later_one(chromium, tmp_path: Path):
    file = tmp_path / "empty.html"
    file.write_text("<p>nothing</p>")
    with chromium.page() as first:
        first.open(file.as_uri())
        first.read("localStorage.setItem('seen', 'yes')")
        assert first.read("localStorage.getItem('seen')") == "yes"
    with chromium.page() as second:
        second.open(file.as_uri())
        assert second.read("localStorage.getItem('seen')") is None


def test_only_unexpected_errors_are_complaints(browser, tmp_path: Path):
    file = tmp_path / "broken.html"
    file.write_text(
        "<img src='missing.png' onerror='window.failed = true'><script>nothing.at.all</script>"
    )
    browser.open(file.as_uri())
    browser.until("window.failed")
    browser.expected.append("ERR_FILE_NOT_FOUND")
    (error,) = browser.complaints()
    assert "nothing is not defined" in error
