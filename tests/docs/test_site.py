"""The built docs: every page is in them, every link leads somewhere, and nothing warns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import farther

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def build(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(out),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_docs_build_without_a_warning(tmp_path):
    done = build(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    reference = (tmp_path / "python/index.html").read_text(encoding="utf-8")
    assert 'id="farther.methods.create"' in reference
    assert "Higher means more in-distribution" in reference


def test_a_broken_link_would_fail_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[nowhere](absent.md)")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**config, "plugins": [], "nav": [{"Start": "index.md"}]}))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "absent.md" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_of_the_repository_lead_somewhere(page):
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_citation_and_the_changelog_name_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == farther.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert f"## [{farther.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
