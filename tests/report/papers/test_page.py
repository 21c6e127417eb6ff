"""Pages of papers."""

from farther.report.pages.papers import PAPERS, content


def test_every_table_is_on_the_page_or_has_a_reason(sources):
    for paper in PAPERS:
        found = paper.tables(sources)
        page = content(paper, found)
        assert list(page["tables"].values()) == [table for table in found if table.is_shown] != []
        assert {table.number for table in found if not table.is_shown} <= set(
            page["absent"].frame["Table"]
        )
        assert all(page["absent"].frame["Reason"])
