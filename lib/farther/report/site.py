"""Pages with one style and one navigation, which open from disk and fetch nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import farther
from farther.incremental.keyed import Keyed
from farther.report.charts.vega import FIGURES
from farther.report.navigation import Navigation
from farther.tables.files import inside
from farther.text.printable import printable_texts

#: Folder of the styles, scripts and plotting library that all pages share.
ASSETS = "assets"


def _are_none(read: Mapping[str, str]) -> bool:
    """Whether a file was made from no further files."""
    return not read


def _no_images(cell: Mapping[str, Any]) -> str:
    """The address of the images behind a cell, in a site without a gallery."""
    return ""


class Site:
    """Writes pages into a folder.

    Use it in a `with` block, which writes styles, scripts and the plotting library.

    Args:
        folder: Where it is written.
        navigation: The pages and their order; None for a site of one page.
        earlier: The folder of an earlier site, whose files are copied where `keep` finds their key
            unchanged.

    Attributes:
        runs: Title of each detector with a page → the name of its run. Tables link the titles.
        images_of: Address of the images behind a cell of a table of results, relative to the
            report's folder; "" for none.
        keys: File → the key that it was made under, of files that a later report may keep.
        read: File → further files that it was made from; see
            `farther.incremental.keyed.RecordedItem`.
    """

    def __init__(
        self, folder: Path, navigation: Navigation | None = None, earlier: Keyed | None = None
    ):
        self.folder = folder
        self.navigation = navigation or Navigation()
        self._earlier = earlier
        self.keys: dict[str, str] = {}
        self.read: dict[str, Mapping[str, str]] = {}
        self._environment = _environment()
        self.runs: Mapping[str, str] = {}
        self.images_of: Callable[[Mapping[str, Any]], str] = _no_images

    def __enter__(self) -> Site:
        for file in files("farther.report").joinpath("static").iterdir():
            self.write_text(f"{ASSETS}/{file.name}", file.read_text(encoding="utf-8"))
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.keep(f"{ASSETS}/vega.js", version("vl-convert-python"), _plotting_library)

    def write(
        self,
        name: str,
        template: str | None = None,
        **content: Any,
    ) -> None:
        """Writes a page: what `render` makes of a template, by default that of the same name.

        Args:
            name, template, content: See `render`.

        Raises:
            DataError: the name leaves the report's folder.
        """
        self.write_text(name, self.render(name, template or name, **content))

    def render(self, name: str, template: str, **content: Any) -> str:
        """A page, or a part of one.

        Args:
            name: Its file name, relative to the report's folder: `index.html`,
                `detectors/voc-vos.html`.
            template: A template that extends `base.html`, or one of a part.
            content: Variables of the template. It also gets `page` (the name), `up` (the path from
                the page to the report's folder: "" or "../"), `sections` and `place`
                (`farther.report.navigation`), `pages` (the files of all pages: a project may lack
                one), `run_names` (`runs`), `run_pages` (title → address) and `images_of`.
        """
        up = "../" * name.count("/")
        run_pages = {}
        for title, run in self.runs.items():
            run_pages[title] = f"{up}detectors/{quote(run)}.html"
        variables: dict[str, Any] = {
            "page": name,
            "up": up,
            "sections": self.navigation.entries,
            "pages": self.navigation.files,
            "place": self.navigation.place(name),
            "run_names": self.runs,
            "run_pages": run_pages,
            "images_of": self.images_of,
        }
        return self._environment.get_template(template).render({**variables, **content})

    def write_text(self, name: str, text: str) -> None:
        """Writes a file that is not a page, such as a script with data.

        Raises:
            DataError: the name leaves the report's folder.
        """
        self._place(name).write_text(text, encoding="utf-8")

    def write_bytes(self, name: str, data: bytes) -> None:
        """Writes a binary file, such as a picture.

        Raises:
            DataError: the name leaves the report's folder.
        """
        self._place(name).write_bytes(data)

    def keep(self, name: str, key: str, content: Callable[[], str | bytes]) -> None:
        """Writes a file, or copies that of the earlier site where it has the same key.

        Args:
            name: Its name, relative to the site's folder.
            key: Digest of all that it is made from.
            content: Makes its content.
        """
        if self.keep_earlier(name, key):
            return
        self.record(name, key)
        text_or_bytes = content()
        if isinstance(text_or_bytes, str):
            self.write_text(name, text_or_bytes)
        else:
            self.write_bytes(name, text_or_bytes)

    def has_earlier(self, name: str) -> bool:
        """Whether the earlier site has a file, under any key."""
        return self._earlier is not None and name in self._earlier.recorded_keys()

    def is_current(
        self,
        name: str,
        key: str,
        are_unchanged: Callable[[Mapping[str, str]], bool] = _are_none,
    ) -> bool:
        """Whether the earlier site has a file under a key, and with its content.

        Args:
            name, key: See `keep`.
            are_unchanged: Whether the further files that it was made from are the same today; by
                default, it is current only where there are none.
        """
        if self._earlier is None or not self._earlier.is_current(name, key):
            return False
        return are_unchanged(self._earlier.read_for(name))

    def keep_earlier(
        self,
        name: str,
        key: str,
        are_unchanged: Callable[[Mapping[str, str]], bool] = _are_none,
    ) -> bool:
        """Copies a file of the earlier site if it is current; False where it is not.

        Args:
            name, key, are_unchanged: See `is_current`.
        """
        if self._earlier is None or not self.is_current(name, key, are_unchanged):
            return False
        shutil.copy2(self._earlier.path(name), self._place(name))
        self.record(name, key, self._earlier.read_for(name))
        return True

    def record(self, name: str, key: str, read: Mapping[str, str] | None = None) -> None:
        """Notes under which key a file was written.

        Args:
            name, key: See `keep`.
            read: Further files that it was made from; see
            `farther.incremental.keyed.RecordedItem`.
        """
        self.keys[name] = key
        self.read[name] = read or {}

    def add_records(self, keys: Mapping[str, str], read: Mapping[str, Mapping[str, str]]) -> None:
        """Notes under which keys files were written by another site in the same folder.

        Args:
            keys, read: Its attributes.
        """
        for name, key in keys.items():
            self.record(name, key, read[name])

    def earlier_keys(self, folder: str) -> dict[str, str]:
        """File → its key, of the files of the earlier site in a folder, such as "gallery/run"."""
        if self._earlier is None:
            return {}
        keys = {}
        for name, key in self._earlier.recorded_keys().items():
            if name.startswith(f"{folder}/"):
                keys[name] = key
        return keys

    def _place(self, name: str) -> Path:
        file = inside(self.folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


@cache
def _plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


@cache
def _environment() -> Environment:
    """The templates; each is compiled once per process."""
    environment = Environment(
        loader=PackageLoader("farther.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable_texts,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = farther.__version__
    environment.globals["figure_style"] = FIGURES
    environment.filters["script"] = as_script
    environment.filters["subscript"] = _subscript
    environment.filters["code"] = _code
    environment.filters["formula"] = _formula
    environment.filters["linked"] = _linked
    return environment


def as_script(value: Any) -> Markup:
    """JSON for a script element: no `<` in it can end the element or start a comment."""
    text = _compact_json(value)
    # JSON escapes some of the characters that have no glyph; they are replaced before.
    other_escapes = text.replace("\\\\", "").replace('\\"', "").replace("\\n", "")
    if "\\" in other_escapes or not other_escapes.isprintable():
        text = _compact_json(printable_texts(value))
    return Markup(text.replace("<", "\\u003c"))


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _subscript(text: str) -> Markup:
    """`AP_U` with its subscript."""
    return Markup(re.sub(r"\b(AP|P|R)_U\b", r"\1<sub>U</sub>", str(escape(text))))


def _code(text: str) -> Markup:
    """Text with `names` between backticks as code elements."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


#: An index below a letter, as `_c`, `_(k)` or `_{i: y_i = c}`, and an exponent above one.
_BELOW = re.compile(r"_(?:\{([^{}]*)\}|(\([^()]*\)|\w+))")
_ABOVE = re.compile(r"\^(?:\{([^{}]*)\}|(\w+))")


def _formula(text: str) -> Markup:
    """A formula with its indices and exponents, and with `names` between backticks as code."""
    parts = str(escape(text)).split("`")
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = f"<code>{part}</code>"
        else:
            parts[number] = _ABOVE.sub(r"<sup>\1\2</sup>", _below(part))
    return Markup("".join(parts))


def _below(text: str) -> str:
    """Text with its indices; an index may have an index itself."""

    def index(match: re.Match[str]) -> str:
        inner = match[1] or match[2]
        if match[1] is not None:
            inner = _below(inner)
        return f"<sub>{inner}</sub>"

    return _BELOW.sub(index, text)


def _linked(text: str) -> Markup:
    """Text with its web addresses and arXiv identifiers as links."""
    link = r'<a href="\g<0>">\g<0></a>'
    arxiv_link = r'<a href="https://arxiv.org/abs/\1">\g<0></a>'
    with_links = re.sub(r"https?://[^\s&]+(?<![.,])", link, str(escape(text)))
    return Markup(re.sub(r"arXiv:(\d{4}\.\d{4,5})", arxiv_link, with_links))
