"""Pages with one look and one navigation, which open from disk: nothing is fetched, nothing comes from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import farther
from farther.tables.files import inside

#: Folder of what all pages share: styles, scripts and the plotting library.
ASSETS = "assets"


@dataclass(frozen=True)
class Entry:
    """A link of the navigation.

    Args:
        page: File name, relative to the report's folder.
        title: What the link says.
    """

    page: str
    title: str


class Site:
    """Writes pages into a folder.

    Args:
        folder: It must not exist yet.
        navigation: The links at the top of each page.
    """

    def __init__(self, folder: Path, navigation: Sequence[Entry]):
        self.folder = folder
        self._navigation = tuple(navigation)
        self._environment = _environment()
        self._write_assets()

    def write(self, name: str, template: str, **content: Any) -> None:
        """Writes a page.

        Args:
            name: Its file name, relative to the report's folder: `index.html`, `detectors/voc-vos.html`.
            template: A template that extends `base.html`.
            content: What the template shows. It also gets `page` (the name), `up` (the way from the page to the
                report's folder: "" or "../") and `navigation`.

        Raises:
            DataError: the name leaves the report's folder.
        """
        given = {"page": name, "up": "../" * name.count("/"), "navigation": self._navigation}
        self.write_text(name, self._environment.get_template(template).render({**given, **content}))

    def write_text(self, name: str, text: str) -> None:
        """Writes a file that is no page, such as a script that hands its page data.

        Raises:
            DataError: the name leaves the report's folder.
        """
        file = inside(self.folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def _write_assets(self) -> None:
        for file in files("farther.report").joinpath("static").iterdir():
            self.write_text(f"{ASSETS}/{file.name}", file.read_text(encoding="utf-8"))
        self.write_text(f"{ASSETS}/vega.js", _plotting_library())


@cache
def _plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("farther.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = farther.__version__
    environment.filters["script"] = as_script
    environment.filters["subscript"] = _subscript
    environment.filters["code"] = _code
    return environment


def as_script(value: Any) -> Markup:
    """JSON that can stand in a script: no `<` in it can end the element or start a comment."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def _subscript(text: str) -> Markup:
    """`AP_U` as the papers print it."""
    return Markup(re.sub(r"\b(AP|P|R)_U\b", r"\1<sub>U</sub>", str(escape(text))))


def _code(text: str) -> Markup:
    """Text with `names` between backticks set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
