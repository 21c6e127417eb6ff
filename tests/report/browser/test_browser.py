"""The complaints of a page: what it prints, without what a test expects."""

from pathlib import Path

from tests.support.pages import until


def test_only_unexpected_errors_are_complaints(tab, tmp_path: Path, complaints):
    file = tmp_path / "broken.html"
    file.write_text(
        "<img src='missing.png' onerror='window.failed = true'><script>nothing.at.all</script>"
    )
    tab.goto(file.as_uri())
    until(tab, "window.failed")
    complaints.expect("ERR_FILE_NOT_FOUND")
    (error,) = complaints()
    assert "nothing is not defined" in error
