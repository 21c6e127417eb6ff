"""The pages of a site and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Largest number of pages of a folder that each of them links.
LINKED = 20


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
        entry: File of the entry of the navigation that the page belongs to; "" for none.
        siblings: The pages of its folder; () where it is in none, or alone. Of more than `LINKED`,
            the page itself and those beside it.
        listed: Where all pages of the folder are listed, if `siblings` has not all of them; else
            "".
        answers: The question that the page answers; "" where its template has the words.
        following: The page that follows, None for none.
    """

    entry: str = ""
    siblings: tuple[Link, ...] = ()
    listed: str = ""
    answers: str = ""
    following: Link | None = None


@dataclass(frozen=True)
class Navigation:
    """The pages of a site; by default a site of one page, without navigation.

    Args:
        entries: The pages that every page links, in the order of reading. One may be the first page
            of a folder, or have the name of a folder, as `papers.html`: the folder's pages belong
            to it.
        folders: Folder → its pages, in the order of reading.
        listings: Folder → the address of a list of all of its pages.
    """

    entries: Sequence[Link] = ()
    folders: Mapping[str, Sequence[Link]] = field(default_factory=dict)
    listings: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> frozenset[str]:
        """The files of all pages."""
        return frozenset(page.file for page in self._pages)

    @property
    def _pages(self) -> list[Link]:
        """All pages in the order of reading, each once."""
        pages: dict[str, Link] = {}
        for entry in self.entries:
            pages[entry.file] = entry
            for page in self.folders.get(_folder_of_entry(entry.file), ()):
                # The entry of a folder's first page has the title of all of them.
                pages[page.file] = page
        return list(pages.values())

    def place(self, file: str) -> Place:
        """The place of a page."""
        pages = self._pages
        files = [page.file for page in pages]
        if file not in files:
            return Place()
        position = files.index(file)

        folder, is_in_folder, _ = file.partition("/")
        siblings: tuple[Link, ...] = ()
        listed = ""
        if is_in_folder and len(self.folders[folder]) > 1:
            siblings = tuple(self.folders[folder])
        if len(siblings) > LINKED:
            # A page that lists all others changes with each of them.
            siblings = _beside(siblings, file)
            listed = self.listings.get(folder, "")
        return Place(
            entry=self._entry_of(file),
            siblings=siblings,
            listed=listed,
            answers=pages[position].answers,
            following=pages[(position + 1) % len(pages)],
        )

    def _entry_of(self, file: str) -> str:
        """File of the entry that a page belongs to."""
        folder, is_in_folder, _ = file.partition("/")
        if not is_in_folder:
            return file
        for entry in self.entries:
            if _folder_of_entry(entry.file) == folder:
                return entry.file
        return ""


def _beside(pages: Sequence[Link], file: str) -> tuple[Link, ...]:
    """A page, the one before it and the one after it."""
    position = [page.file for page in pages].index(file)
    return tuple(pages[max(position - 1, 0) : position + 2])


def _folder_of_entry(file: str) -> str:
    """The folder whose pages belong to an entry: its own, or that of its name."""
    folder, is_in_folder, _ = file.partition("/")
    if is_in_folder:
        return folder
    return file.removesuffix(".html")
