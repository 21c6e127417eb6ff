"""The pages of a site and the links between them.

These are sections, the pages above each page, and the page that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Link(NamedTuple):
    """A page that others link.

    Args:
        file: Its file, relative to the site's folder.
        title: Its title.
        answers: The question that it answers.
    """

    file: str
    title: str
    answers: str = ""


@dataclass(frozen=True)
class Place:
    """The place of a page on the site, as templates show it.

    Args:
        section: File of the section's page, "" on a site without sections.
        below: The pages of the section, its own first; () where it has only one.
        above: The pages that lead to this one, the first page of the site first.
        answers: The question that the page answers; "" where its template has the words.
        following: The page that follows, None for none.
    """

    section: str = ""
    below: tuple[Link, ...] = ()
    above: tuple[Link, ...] = ()
    answers: str = ""
    following: Link | None = None


@dataclass(frozen=True)
class Navigation:
    """The pages of a site; by default a site of one page, without sections.

    A page in a folder, such as `detectors/voc-vos.html`, is below the page of the same name,
    `detectors.html`.

    Args:
        sections: File of each section's page → the pages of the section, its own first, in the
            order of reading.
        path: Files of the pages that one reader follows from the first page on, whatever their
            sections.
    """

    sections: Mapping[str, tuple[Link, ...]]
    path: Sequence[str] = ()

    @property
    def entries(self) -> list[Link]:
        """The page of each section."""
        return [pages[0] for pages in self.sections.values()]

    @property
    def _pages(self) -> list[Link]:
        """The pages of all sections in the order of reading."""
        return [page for section in self.sections.values() for page in section]

    def place(self, file: str, siblings: Sequence[Link] = ()) -> Place:
        """The place of a page.

        Args:
            file: The page.
            siblings: The pages of its folder in the order of reading; () for a page that is in
                none.
        """
        folder, is_in_folder, _ = file.partition("/")
        parent_file = file
        if is_in_folder:
            parent_file = f"{folder}.html"
        section = self._section_of(parent_file)
        if section is None:
            return Place()
        pages = self.sections[section]
        parent = next(page for page in pages if page.file == parent_file)

        ancestors = [self._pages[0], pages[0]]
        answers = parent.answers
        if is_in_folder:
            ancestors.append(parent)
            answers = ""
        above = [page for page in dict.fromkeys(ancestors) if page.file != file]
        return Place(
            section=section,
            below=pages if len(pages) > 1 else (),
            above=tuple(above),
            answers=answers,
            following=_next_sibling(file, siblings) or self._following(parent_file),
        )

    def _section_of(self, file: str) -> str | None:
        """The section with a page; None where no section has it."""
        for section, pages in self.sections.items():
            if any(page.file == file for page in pages):
                return section
        return None

    def _following(self, file: str) -> Link:
        """The next page of the path, or of all pages; the first one after the last."""
        pages = self._pages
        files = [page.file for page in pages]
        if file in self.path:
            position = self.path.index(file) + 1
            if position < len(self.path):
                return pages[files.index(self.path[position])]
        return pages[(files.index(file) + 1) % len(pages)]


def _next_sibling(file: str, siblings: Sequence[Link]) -> Link | None:
    """The page of a folder that follows a page; None after the last."""
    files = [link.file for link in siblings]
    if file not in files:
        return None
    position = files.index(file) + 1
    if position == len(siblings):
        return None
    return siblings[position]
