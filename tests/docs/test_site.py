"""The built docs: every page is in them, every link leads somewhere, and nothing warns."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import farther
import farther.metrics
from farther import methods
from farther.tables.conversions import Conversions

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "tables",
    "datasets",
    "detectors",
    "methods",
    "curation",
    "similarity",
    "monitor",
    "report",
)
#: Modules of `farther.metrics` that only the others use.
INTERNAL = {
    "closed_set.matched_detections",
    "closed_set.mismatch",
    "matching",
    "matching.boxes",
    "ood.two_sides",
    "open_set.drawn_thresholds",
    "precision_recall",
    "self_awareness.images",
    "self_awareness.matches",
    "weighting",
    "wilderness.class_detections",
}
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def build(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = ["build", "--strict", "--config-file", str(config), "--site-dir", str(out)]
    command = [sys.executable, "-m", "mkdocs", *words]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
    }  # of the theme's authors: MkDocs has a successor
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", out)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


@pytest.mark.slow
def test_the_docs_build_without_a_warning(site):
    reference = (site / "api/methods.html").read_text(encoding="utf-8")
    assert 'id="farther.methods.create"' in reference
    assert "Higher means more in-distribution" in reference
    assert "&gt;&gt;&gt;" in reference, "doctests are shown as code"


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    """It is read without a network, and from a folder."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(
            r'<(?:script|img|iframe|link rel="?stylesheet"?)[^>]* (?:src|href)="?(https?:[^" >]*)',
            text,
        )
        assert loaded == []
        assert not re.search(r'<a href="[a-z-]+/"', text), "links name files"


def links_of(page: Path) -> list[str]:
    """Addresses of the site's files that a page links or loads, without anchors."""
    text = page.read_text(encoding="utf-8")
    addresses = re.findall(r'(?:href|src)="([^"#]+)', text)
    return [one for one in addresses if not re.match(r"[a-z]+:|data:", one)]


@pytest.mark.slow
def test_links_of_the_page_of_unknown_addresses_lead_somewhere(site):
    page = site / "404.html"
    links = links_of(page)
    assert "./index.html" in links
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert '"base": "."' in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_search_lists_pages_of_the_python_api_after_others(site):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    boosts_by_part = {"api": set(), "other": set()}
    for entry in index["docs"]:
        part = "api" if entry["location"].startswith("api/") else "other"
        boosts_by_part[part].add(entry.get("boost", 1))
    assert boosts_by_part == {"api": {0.0001}, "other": {1}}


@pytest.mark.slow
def test_every_method_has_its_section_in_the_reference(site):
    text = (site / "methods.html").read_text(encoding="utf-8")
    assert [name for name in methods.names() if f'<h3 id="{name}">' not in text] == []


def public_names() -> set[str]:
    """Names in `__all__` of packages, functions and classes of metrics, and other public names."""
    modules = {package: importlib.import_module(f"farther.{package}") for package in PACKAGES}
    names = {
        f"farther.{package}.{name}"
        for package, module in modules.items()
        for name in module.__all__
    }
    for module in pkgutil.walk_packages(farther.metrics.__path__, "farther.metrics."):
        if module.name.removeprefix("farther.metrics.") not in INTERNAL:
            names |= {
                f"{module.name}.{name}"
                for name, value in vars(importlib.import_module(module.name)).items()
                if not name.startswith("_")
                and (inspect.isfunction(value) or inspect.isclass(value))
                and value.__module__ == module.name
            }
    names |= {
        f"farther.tables.Regions.{name}" for name in dir(Conversions) if not name.startswith("_")
    }
    relied_on = runpy.run_path(str(ROOT / "tests/test_public_names.py"))["NAMES"]
    return names | {
        f"farther.{name}".replace("farther.Monitor", "farther.monitor.Monitor")
        for name in relied_on
    }


def test_every_public_function_says_what_its_arguments_are():
    """By name, in its docstring."""
    lacking = []
    for name in sorted(public_names()):
        value = pkgutil.resolve_name(name)
        if inspect.isfunction(value) and "." not in value.__qualname__:
            words = set(re.findall(r"\w+", inspect.getdoc(value) or ""))
            lacking += [
                f"{name}({argument})"
                for argument in inspect.signature(value).parameters
                if argument not in words
            ]
    assert lacking == []


@pytest.mark.slow
def test_the_reference_has_every_public_name(site):
    shown = {
        anchor
        for page in (site / "api").glob("*.html")
        for anchor in re.findall(r'id="(farther\.[\w.]+)"', page.read_text(encoding="utf-8"))
    }
    assert sorted(public_names() - shown) == []


def test_a_broken_link_would_fail_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[nowhere](absent.md)")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config |= {"plugins": [], "hooks": [], "nav": [{"Start": "index.md"}]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "absent.md" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_of_the_repository_lead_somewhere(page):
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def words(pattern: str) -> set[str]:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return {
        word for page in pages for word in re.findall(pattern, page.read_text(encoding="utf-8"))
    }


def test_scripts_that_the_docs_name_are_there():
    named = words(
        r"(?<![\w/])(?:tests|benchmarks|stages|training|profiles)/[\w/.-]+\.(?:py|yaml)\b"
    )
    assert named
    assert sorted(file for file in named if not (ROOT / file).exists()) == []


def test_names_of_the_library_that_the_docs_use_exist():
    other_names = {"farther.extensions"}  # of an entry point
    other_names |= {
        "farther.classes",
        "farther.method",
        "farther.operating",
        "farther.tau",
    }  # of ONNX
    for name in words(r"\bfarther(?:\.[A-Za-z_]\w*)+") - other_names:
        assert pkgutil.resolve_name(name) is not None


def test_the_citation_and_the_changelog_name_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == farther.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert f"## [{farther.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_table_of_extras_is_that_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    rows = re.findall(r"^\| (`.+?`) \|", (ROOT / "docs/install.md").read_text(), flags=re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(extras)
