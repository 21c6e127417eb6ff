"""The pages of a site and the ways between them: sections, what is above each page, and the page that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Link(NamedTuple):
    """A page that others link: its file, relative to the site's folder; its title; and what it answers."""

    file: str
    title: str
    answers: str = ""


@dataclass(frozen=True)
class Place:
    """Where a page is, and what templates show of it.

    Args:
        section: File of the section's page, "" on a site without sections.
        below: The pages of the section, its own first; () where there is one alone.
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

    def place(self, file: str, siblings: Sequence[Link] = ()) -> Place:
        """The place of a page.

        Args:
            file: The page.
            siblings: The pages of its folder in the order of reading; () for a page that is in
                none.
        """
        pages = [page for of_section in self.sections.values() for page in of_section]
        files = [page.file for page in pages]
        folder, is_inside, _ = file.partition("/")
        parent = f"{folder}.html" if is_inside else file
        if parent not in files:
            return Place()
        section, below = next(
            (name, of) for name, of in self.sections.items() if parent in [page.file for page in of]
        )
        above = [pages[0], below[0], *([pages[files.index(parent)]] if is_inside else [])]
        return Place(
            section,
            below if len(below) > 1 else (),
            tuple(page for page in dict.fromkeys(above) if page.file != file),
            "" if is_inside else pages[files.index(file)].answers,
            self._sibling(file, siblings) or self._following(parent, pages),
        )

    def _sibling(self, file: str, siblings: Sequence[Link]) -> Link | None:
        names = [link.file for link in siblings]
        later = siblings[names.index(file) + 1 :] if file in names else ()
        return later[0] if later else None

    def _following(self, file: str, pages: Sequence[Link]) -> Link:
        """The next page of the path, or of all pages; the first one after the last."""
        files = [page.file for page in pages]
        ahead = list(self.path[self.path.index(file) + 1 :]) if file in self.path else []
        return pages[files.index(ahead[0]) if ahead else (files.index(file) + 1) % len(pages)]
