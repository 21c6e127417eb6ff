"""BibTeX entries of farther, of the papers that it follows, and of the methods of a project."""

from __future__ import annotations

import re
from collections.abc import Iterable

import farther
from farther.text import escaping

#: `Authors, "Title", year, … arXiv:1234.56789`, as references of methods are written.
REFERENCE = re.compile(
    r'(?:[^",]*: )?(?P<authors>[^"]+), "(?P<title>[^"]+)".*?(?P<year>\d{4})\b'
    r".*?arXiv:(?P<arxiv>[\d.]+\d)"
)

#: `Authors, year: Title. arXiv:1234.56789` or a DOI's address, as papers are cited.
CITATION = re.compile(
    r"(?P<authors>.+), (?P<year>\d{4}): (?P<title>.+)\. "
    r"(?:arXiv:(?P<arxiv>[\d.]+\d)|https://doi\.org/(?P<doi>[^\s{}]+))"
)


def bibtex(citations: Iterable[str], references: Iterable[str]) -> str:
    r"""Entries of farther, of papers and of methods, each once.

    Args:
        citations: Of papers, see `CITATION`.
        references: Of methods, see `REFERENCE`; others, such as sections of a paper, are left out.

    >>> text = bibtex([], ['Liu et al., "Energy-based Detection", 2020, arXiv:2010.03759.'])
    >>> print(*text.splitlines()[-6:-1], sep="\n")
      author = {Liu and others},
      title = {{Energy-based Detection}},
      year = {2020},
      eprint = {2010.03759},
      archivePrefix = {arXiv},
    """
    fields = {
        "author": "{The farther developers}",
        "title": "{farther}",
        "version": farther.__version__,
    }
    entries = {"farther": _entry("software", "farther", fields)}
    matches = [CITATION.match(text) for text in citations]
    matches += [REFERENCE.match(text) for text in references]
    for match in matches:
        if match is None:
            continue
        key = _key(match)
        if key not in entries:
            entries[key] = _entry("misc", key, _fields(match))
    return "\n".join(entries.values())


def _key(match: re.Match[str]) -> str:
    """First author, year and first long word of the title: "liu2020energy"."""
    author = re.search(r"\w*", match["authors"])
    word = re.search(r"\w{3,}|$", match["title"])
    return f"{author[0]}{match['year']}{word[0]}".lower()  # type: ignore[index]


def _fields(match: re.Match[str]) -> dict[str, str]:
    """Fields of a matched citation or reference."""
    authors = escaping.bibtex(match["authors"])
    authors = re.sub(r",? et al\.?", " and others", authors).replace(", ", " and ")
    fields = {
        "author": authors,
        "title": f"{{{escaping.bibtex(match['title'])}}}",
        "year": match["year"],
    }
    identifiers = match.groupdict()
    if identifiers.get("arxiv"):
        fields["eprint"] = identifiers["arxiv"]
        fields["archivePrefix"] = "arXiv"
    if identifiers.get("doi"):
        fields["doi"] = identifiers["doi"]
    return fields


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}}}\n"
