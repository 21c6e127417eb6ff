"""Pages of papers."""

import csv

from farther.report.pages.papers import content
from farther.report.papers.layout import PAPERS, read_paper
from farther.report.papers.render import LongTables, render


def test_every_table_is_on_the_page_or_has_a_reason(sources):
    tables = LongTables(sources)
    for name in PAPERS:
        paper = read_paper(name)
        rendered = [render(layout, tables) for layout in paper.tables]
        page = content(name, paper, rendered)
        assert list(page["tables"].values()) == [table for table in rendered if table.is_shown]
        assert page["tables"]
        absent = {table.layout.number for table in rendered if not table.is_shown}
        assert absent <= set(page["absent"].frame["Table"])
        assert all(page["absent"].frame["Reason"])


def test_each_table_has_links_to_its_csv_and_latex_files(report_of_two, read):
    for name in PAPERS:
        page = read(report_of_two / "papers" / f"{name}.html")
        files = []
        for element in page.all("a"):
            if "download" in element.attributes:
                files.append(report_of_two / "papers" / element.attributes["href"])
        assert len(files) == 2 * (len(page.all("table")) - 1) > 0  # all but that of absent tables
        assert all(file.is_file() for file in files)


def test_the_csv_file_has_the_table_of_the_page(report_of_two, read):
    page = read(report_of_two / "papers/fmiyc.html")
    file = report_of_two / "papers/fmiyc/table-1.csv"
    (row, *_) = csv.reader(file.open(encoding="utf-8"))
    assert row == page.texts("th")[: len(row)]
    text = file.with_suffix(".tex").read_text(encoding="utf-8")
    assert r"\label{tab:fmiyc-table-1}" in text
