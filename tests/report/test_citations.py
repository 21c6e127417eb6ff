"""BibTeX of what a report should cite."""

import re

from farther.methods import get, names
from farther.report.citations import CITATION, bibtex
from farther.report.documented import texts_of
from farther.report.papers.layout import PAPERS, read_paper


def test_every_paper_and_every_method_with_an_identifier_is_cited():
    citations = [read_paper(name).citation for name in PAPERS]
    assert all(CITATION.fullmatch(citation) for citation in citations)
    methods = [name for name in names() if get(name).__module__.startswith("farther.methods")]
    references = []
    for name in methods:
        for text in texts_of(name, {}):
            references += text.references
    entries = bibtex(citations, references)

    identifiers = set()
    for reference in references:
        match = re.search(r"arXiv:([\d.]+\d)", reference)
        if match is not None:
            identifiers.add(match[1])
    assert len(identifiers) > 15
    for identifier in identifiers:
        assert identifier in entries


def test_authors_titles_and_identifiers_are_those_of_the_reference():
    text = bibtex(
        ["Oksuz, Joy and Dokania, 2023: Self-Aware Detectors. arXiv:2307.00934"],
        [
            'Wang et al., "ViM: Virtual-logit Matching", 2022, arXiv:2203.10807. Code: https://x.y',
            "FMIYC, Eq. 28.",
        ],
    )
    assert text.count("@") == 3
    assert "author = {Oksuz and Joy and Dokania}" in text
    fields = [
        "author = {Wang and others}",
        "title = {{ViM: Virtual-logit Matching}}",
        "year = {2022}",
        "eprint = {2203.10807}",
    ]
    assert ",\n  ".join(fields) in text


def test_the_page_of_provenance_has_the_entries_of_the_project(report, read):
    (entries,) = (e.text for e in read(report / "provenance.html").all("pre"))
    assert re.findall(r"@software\{(\w+)", entries) == ["farther"]
    assert "hendrycks2017baseline" in entries
    assert "2506.14008" in entries
    assert entries.count("{") == entries.count("}")
