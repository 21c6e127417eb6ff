import sys

import pytest

from farther.code import digest_of, source_files

FILES = {
    "zoo/__init__.py": "",
    "zoo/adapter.py": "import json\nfrom zoo import base\nfrom zoo.names import label\nfrom .layers import norm\n",
    "zoo/base.py": "def make():\n    from zoo.lazy import network\n    return network\n",
    "zoo/names.py": "def label(): ...\n",
    "zoo/lazy.py": "import zoo.base\nnetwork = 1\n",
    "zoo/layers/__init__.py": "from .norms import norm\n",
    "zoo/layers/norms.py": "norm = 1\n",
    "zoo/other_adapter.py": "",
    "own.py": "import zoo.names, numpy\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda module: [str(path.relative_to(tmp_path)) for path in source_files(module, package="zoo").values()]
    for name in [name for name in sys.modules if name.split(".")[0] in ("zoo", "own")]:
        del sys.modules[name]


def test_imports_are_followed_within_the_package_also_those_inside_functions_and_relative_ones(package):
    assert package("zoo.adapter") == [
        "zoo/adapter.py",
        "zoo/base.py",
        "zoo/layers/__init__.py",
        "zoo/layers/norms.py",
        "zoo/lazy.py",
        "zoo/names.py",
    ]


def test_a_module_outside_of_the_package_counts_with_what_it_takes_from_it(package):
    assert package("own") == ["own.py", "zoo/names.py"]


def test_modules_that_import_each_other_end(package):
    assert package("zoo.lazy") == ["zoo/base.py", "zoo/lazy.py"]


def test_what_has_no_source_has_no_file(package):
    assert package("sys") == []
    assert package("zoo.nothing") == []


def test_other_adapters_are_not_part_of_an_adapters_code():
    modules = set(source_files("farther.detectors.yolo"))
    assert {"farther.images.read", "farther.tables.regions"} <= modules
    assert "farther.detectors.faster_rcnn" not in modules


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('"""One."""\nx = 1  # first\n', '"""Two."""\n\n# second\nx = 1\n', True),
        ("def f():\n    '''One.'''\n    return 1\n", "def f():\n    return (1)\n", True),
        ("x = 1\n", "x = 2\n", False),
        ("x = 'one'\n", "x = 'two'\n", False),
    ],
)
def test_comments_docstrings_and_layout_change_no_digest(tmp_path, monkeypatch, before, after, same):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "lone_module_of_this_test.py"
    digests = []
    for text in (before, after):
        module.write_text(text + "\n" * len(digests))  # another size, also within one tick of the clock
        digests.append(digest_of(module.stem))
    assert (digests[0] == digests[1]) is same
