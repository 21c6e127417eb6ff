"""The exported LaTeX: it is rectangular, compiles, and is not wider than the text."""

import re
import shutil
import subprocess

import pytest

HEAD = r"\documentclass{article}\usepackage{booktabs,adjustbox,xcolor}\begin{document}"


@pytest.fixture
def tables(report):
    files = sorted((report / "tables").glob("*.tex"))
    assert len(files) >= 2
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def count_cells(row: str) -> int:
    """Cells of a row; one that spans several columns counts as these."""
    cells = len(re.findall(r"(?<!\\)&", row)) + 1
    spans = re.findall(r"\\multicolumn\{(\d+)\}", row)
    return cells + sum(int(span) - 1 for span in spans)


def check_rectangular(text: str) -> None:
    columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {count_cells(row) for row in rows} == {columns}
    assert text.count(r"\begin{") == text.count(r"\end{")
    assert r"\caption{" in text


def test_every_row_has_a_cell_for_each_column(tables):
    for text in tables.values():
        check_rectangular(text)
        assert "Bold: best" in text


def test_tables_of_papers_have_a_cell_for_each_column_too(report_of_two):
    files = list((report_of_two / "papers").glob("*/*.tex"))
    assert len(files) > 20
    for file in files:
        text = file.read_text(encoding="utf-8")
        check_rectangular(text)
        assert text.isascii()


def test_tables_compile_and_fit_the_width_of_the_text(tables, tmp_path):
    assert all(text.isascii() for text in tables.values()), (
        "pdflatex knows few letters besides ASCII"
    )
    if shutil.which("pdflatex") is None:
        return  # the test above has checked rows and environments
    (tmp_path / "all.tex").write_text("\n".join([HEAD, *tables.values(), r"\end{document}"]))
    command = [
        "pdflatex",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "-no-shell-escape",
        "all.tex",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert result.returncode == 0, result.stdout[-2000:]
    assert "Overfull" not in result.stdout
