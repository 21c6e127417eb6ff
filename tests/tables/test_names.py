"""The names of `farther.tables`, each imported when it is first used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from farther import tables


def imports_for_types() -> dict[str, str]:
    """{name: module} that type checkers and digests of code read in the package."""
    tree = ast.parse(Path(tables.__file__).read_text())
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("farther.tables."):
            for alias in node.names:
                modules[alias.name] = node.module
    return modules


def test_each_name_is_that_of_the_module_that_type_checkers_read():
    modules = imports_for_types()
    assert sorted(modules) == sorted(tables.__all__)
    for name, module in modules.items():
        assert getattr(tables, name) is getattr(sys.modules[module], name)
        assert name in dir(tables)


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match=r"^module 'farther.tables' has no attribute 'Image'$"):
        _ = tables.Image


def test_parameters_keys_and_repro_load_no_tables():
    code = (
        "import sys, farther.command.repro, farther.incremental.keyed, farther.params;"
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "numpy", "polars", "pyarrow"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == "[]\n"
