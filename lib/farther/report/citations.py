"""BibTeX entries of farther, of the papers that it follows, and of the methods of a project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import farther
from farther import escaping

#: `Authors, "Title", year, … arXiv:1234.56789`, as references of methods are written.
REFERENCE = re.compile(
    r'(?:[^",]*: )?(?P<authors>[^"]+), "(?P<title>[^"]+)".*?(?P<year>\d{4})\b.*?arXiv:(?P<arxiv>[\d.]+\d)'
)

#: `Authors, year: Title. arXiv:1234.56789` or a DOI's address, as papers are cited.
CITATION = re.compile(
    r"(?P<authors>.+), (?P<year>\d{4}): (?P<title>.+)\. (?:arXiv:(?P<arxiv>[\d.]+\d)|https://doi\.org/(?P<doi>[^\s{}]+))"
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
    own = {
        "author": "{The farther developers}",
        "title": "{farther}",
        "version": farther.__version__,
    }
    entries = {"farther": _entry("software", "farther", own)}
    for pattern, texts in ((CITATION, citations), (REFERENCE, references)):
        for found in filter(None, map(pattern.match, texts)):
            parts = found.groupdict()
            key = _key(parts)
            entries.setdefault(key, _entry("misc", key, dict(_fields(parts))))
    return "\n".join(entries.values())


def _key(parts: dict[str, str]) -> str:
    author, word = re.search(r"\w*", parts["authors"]), re.search(r"\w{3,}|$", parts["title"])
    return f"{author[0]}{parts['year']}{word[0]}".lower()  # type: ignore[index]


def _fields(parts: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield (
        "author",
        re.sub(r",? et al\.?", " and others", escaping.bibtex(parts["authors"])).replace(
            ", ", " and "
        ),
    )
    yield "title", f"{{{escaping.bibtex(parts['title'])}}}"
    yield "year", parts["year"]
    if parts.get("arxiv"):
        yield from (("eprint", parts["arxiv"]), ("archivePrefix", "arXiv"))
    if parts.get("doi"):
        yield "doi", parts["doi"]


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}}}\n"
