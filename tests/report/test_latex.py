"""The exported LaTeX: every row has a cell for each column; it compiles and is not wider than the text."""

import re
import shutil
import subprocess

import pytest

HEAD = r"\documentclass{article}\usepackage{booktabs,adjustbox,xcolor}\begin{document}"


@pytest.fixture
def tables(report):
    found = sorted((report / "tables").glob("*.tex"))
    assert len(found) >= 2
    return {file.stem: file.read_text(encoding="utf-8") for file in found}


def test_every_row_has_a_cell_for_each_column(tables):
    for name, text in tables.items():
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        spans = [
            sum(int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", row))
            for row in rows
        ]
        cells = [
            len(re.findall(r"(?<!\\)&", row)) + 1 + span
            for row, span in zip(rows, spans, strict=True)
        ]
        assert set(cells) == {columns}, name
        assert (
            text.count(r"\begin{") == text.count(r"\end{")
            and r"\caption{" in text
            and "Bold: best" in text
        )


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
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert made.returncode == 0, made.stdout[-2000:]
    assert "Overfull" not in made.stdout
