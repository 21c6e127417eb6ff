"""Of DVC only what its documentation describes is used: its commands, its files and `dvc.api`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("lib", "stages", "training", "tests", "benchmarks", "docs", "extensions")
#: DVC, and the packages that are its parts.
PACKAGES = {"dvc", "dvc_data", "dvc_objects", "dvc_render", "dvc_task", "scmrepo"}
#: A line that may import one of them: other files are not parsed.
MENTIONED = re.compile(r"(import|from)\b.*\b(dvc|dvc_\w+|scmrepo)\b|\bimport_module\(|\b__import__")
#: Functions that import a module by its name.
IMPORTERS = {"import_module", "importorskip", "__import__"}


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """The modules that a file imports, also those that it names in texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func).rpartition(".")[2]
            name = node.args[0]
            if function in IMPORTERS and isinstance(name, ast.Constant):
                yield str(name.value)


def private_modules(text: str) -> list[str]:
    """The undocumented modules of DVC that a file imports."""
    private = []
    for module in imported_modules(ast.parse(text)):
        is_documented = module == "dvc.api" or module.startswith("dvc.api.")
        if module.partition(".")[0] in PACKAGES and not is_documented:
            private.append(module)
    return private


def test_no_file_imports_an_undocumented_module_of_dvc():
    files = 0
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            files += 1
            text = file.read_text(encoding="utf-8")
            if MENTIONED.search(text):
                assert private_modules(text) == [], file
    assert files > 500


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import dvc.api", []),
        ("from dvc.api import DVCFileSystem", []),
        ("from dvc import api", []),
        ("import dvc", ["dvc"]),
        ("from dvc.repo import Repo", ["dvc.repo.Repo"]),
        ("def run():\n    import scmrepo.git", ["scmrepo.git"]),
        ("importlib.import_module('dvc.cli')", ["dvc.cli"]),
        ("from .dvc import run", []),
    ],
)
def test_every_way_to_import_a_module_is_seen(text, modules):
    assert private_modules(text) == modules
