"""Names and notes of files as text of a spreadsheet, Markdown, LaTeX or BibTeX.

They are shown as written, never obeyed.
"""

from __future__ import annotations

import re

from farther.text.printable import printable_line

#: A text that a spreadsheet would take for a formula; numbers are none.
_FORMULA = re.compile(r"(?![+-]?[\d.]+(e[+-]?\d+)?$)[=+\-@\t\r\n＝＋－＠]")
#: The same behind apostrophes.
_MARKED = re.compile(f"'*{_FORMULA.pattern}")

#: Letters that Markdown takes for markup. A bar would end a cell of a table even behind a
#: backslash.
_MARKDOWN = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`*_[]~$"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
)

#: Characters that TeX does not print as they are.
_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "†": r"$^\dagger$",
    }
    | {
        "τ": r"$\tau$",
        "≥": r"$\geq$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "…": r"\dots{}",
        "→": r"$\to$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "Σ": r"$\Sigma$",
        "β": r"$\beta$",
    }
)

#: BibTeX counts braces, those behind a backslash too.
_BIBTEX = _LATEX | str.maketrans({"{": r"\textbraceleft{}", "}": r"\textbraceright{}"})


def spreadsheet(text: str) -> str:
    """The text with an apostrophe before what a spreadsheet would take for a formula.

    Such a text gets one more.

    >>> spreadsheet("=1+1"), spreadsheet("'=1+1"), spreadsheet("-0.5"), spreadsheet("a=b")
    ("'=1+1", "''=1+1", '-0.5', 'a=b')
    """
    if _MARKED.match(text):
        return f"'{text}"
    return text


def of_spreadsheet(text: str) -> str:
    """The text that `spreadsheet` was given.

    >>> of_spreadsheet("'=1+1"), of_spreadsheet("=1+1"), of_spreadsheet("'a'")
    ('=1+1', '=1+1', "'a'")
    """
    if text.startswith("'") and _MARKED.match(text):
        return text[1:]
    return text


def markdown(text: str) -> str:
    r"""The text in one line of Markdown, also in a cell of a table.

    It has no link, picture, element, emphasis or formula.

    >>> print(markdown("[a|b](x) <b>"))
    \[a&#124;b\](x) &lt;b&gt;
    """
    return printable_line(text).translate(_MARKDOWN)


def latex(text: str) -> str:
    r"""The text in one line of LaTeX.

    >>> print(latex("50% of $x_1$"))
    50\% of \$x\_1\$
    """
    return printable_line(text).translate(_LATEX)


def bibtex(text: str) -> str:
    r"""The text in a field of BibTeX: LaTeX whose braces match.

    >>> print(bibtex("a}, b"))
    a\textbraceright{}, b
    """
    return printable_line(text).translate(_BIBTEX)
