import ast
import sys
from types import ModuleType

import pytest

from farther.code import _written, digest_of, modules_of, packages_of, registered, registered_in, source_files
from farther.datasets.base import FORMATS
from farther.derived.base import KINDS
from farther.derived.cutouts import SOURCES
from farther.detectors.base import registry as detectors
from farther.methods.base import METHODS
from farther.pipeline.stages import STAGES
from farther_training.trainers import registry as trainers

FILES = {
    "zoo/__init__.py": "",
    "zoo/adapter.py": "import json\nfrom zoo import base\nfrom zoo.names import label\nfrom .layers import norm\n",
    "zoo/base.py": "def make():\n    from zoo.lazy import network\n    return network\n",
    "zoo/names.py": "import PIL\ndef label(): ...\n",
    "zoo/lazy.py": "import zoo.base\nnetwork = 1\n",
    "zoo/layers/__init__.py": "from .norms import norm\n",
    "zoo/layers/norms.py": "norm = 1\n",
    "zoo/other_adapter.py": "",
    "zoo/shop/__init__.py": "from zoo.shop.sell import price\nfrom .buy import cost\nfast = 1\n",
    "zoo/shop/sell.py": "price = 1\n",
    "zoo/shop/buy.py": "cost = 1\n",
    "zoo/lazily/__init__.py": "kept = 1\ndef __getattr__(name): ...\n",
    "zoo/lazily/one.py": "",
    "zoo/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from zoo.names import label\n",
    "zoo/data/__init__.py": 'TABLE, PAGES = "table.yaml", "pages"',
    "zoo/data/sizes.py": 'SIZES = "sizes.yaml"',
    "zoo/data/sizes.yaml": "1",
    "zoo/data/table.yaml": "1",
    "zoo/data/__pycache__/table.yaml": "1",
    "zoo/data/pages/index.html": "",
    "own.py": "import zoo.names, numpy\n",
    "priced.py": "from zoo.shop import price\n",
    "shopping.py": "from zoo import shop\n",
    "lazy_user.py": "from zoo.lazily import thing\n",
    "eager_user.py": "from zoo.lazily import kept\nfrom zoo.shop import absent\n",
    "zoo/market/__init__.py": "",
    "zoo/market/stalls.py": "import json, numpy.fft\nfrom .prices import sums\n@register('stall')\nclass Stall: ...\n",
    "zoo/market/prices.py": "import scipy.special\nfrom farther.errors import DataError\nfrom zoo import names\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda module: [str(path.relative_to(tmp_path)) for path in source_files(module, packages=["zoo"]).values()]
    for name in [name for name in sys.modules if name.split(".")[0] == "zoo"]:
        del sys.modules[name]


def test_imports_are_followed_within_the_package_also_those_inside_functions_and_relative_ones(package):
    assert package("zoo.adapter") == [
        "zoo/adapter.py",
        "zoo/base.py",
        "zoo/layers/norms.py",
        "zoo/lazy.py",
        "zoo/names.py",
    ]


def test_a_module_outside_of_the_package_counts_with_what_it_takes_from_it(package):
    assert package("own") == ["own.py", "zoo/names.py"]


def test_a_syntax_tree_is_written_alike_in_every_python():
    tree = ast.parse("def f(a=None):\n    return [f'{a}é']\n")
    assert _written(tree) == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='a')], defaults=[Constant()]), body=[Return("
        "value=List(elts=[JoinedStr(values=[FormattedValue(value=Name(id='a', ctx=Load()), conversion=-1), "
        "Constant(value='\\xe9')])], ctx=Load()))])])"
    )


def test_modules_that_import_each_other_end(package):
    assert package("zoo.lazy") == ["zoo/base.py", "zoo/lazy.py"]


def test_a_name_that_a_package_takes_from_a_module_leads_to_that_module_only(package):
    assert package("priced") == ["priced.py", "zoo/shop/sell.py"]
    assert package("shopping") == ["shopping.py", "zoo/shop/__init__.py", "zoo/shop/buy.py", "zoo/shop/sell.py"]


def test_a_name_that_a_package_loads_lazily_may_come_from_any_of_its_modules(package):
    assert package("lazy_user") == ["lazy_user.py", "zoo/lazily/__init__.py", "zoo/lazily/one.py"]


def test_a_name_that_a_package_defines_leads_to_none_of_its_modules(package):
    read = ["zoo/shop/__init__.py", "zoo/shop/buy.py", "zoo/shop/sell.py"]
    assert package("eager_user") == ["eager_user.py", "zoo/lazily/__init__.py", *read]


def test_modules_of_a_package_their_names_and_what_they_import(package, tmp_path):
    assert modules_of("zoo.market") == ["zoo.market", "zoo.market.prices", "zoo.market.stalls"]
    assert registered("zoo.market") == {"stall": "zoo.market.stalls"}
    assert registered_in(tmp_path / "zoo/market/stalls.py", "zoo.market.stalls") == ("stall",)
    assert packages_of("zoo.market.stalls") == {"numpy", "scipy", "zoo"}


@pytest.mark.parametrize("module", [stage.module for stage in STAGES if stage.module])
def test_the_checks_of_a_stage_do_not_count(module):
    followed = source_files(module)
    assert not [name for name in followed if ".check" in name or "doctor" in name]
    assert module in followed


def test_imports_for_type_checkers_do_not_count(package):
    assert package("zoo.typed") == ["zoo/typed.py"]


def test_data_files_that_a_module_names_count_with_it(package):
    assert package("zoo.data") == ["zoo/data/pages/index.html", "zoo/data/table.yaml", "zoo/data/__init__.py"]


def test_a_registry_and_the_digests_of_code_agree_on_the_modules_of_names():
    assert METHODS.modules["vim"] == "farther.methods.vim"
    for registry in (METHODS, FORMATS, detectors, trainers):
        assert registry.modules == registered(registry._package)
    assert KINDS.modules | SOURCES.modules == registered("farther.derived")


def test_a_script_counts_with_what_it_imports(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from farther.tables import Images\n")
    images = source_files(script)
    script.write_text("from farther.tables import Regions  # a longer line\n")
    regions = source_files(script)
    assert "farther.tables.regions" in regions
    assert "farther.tables.regions" not in images
    assert "script.py" in images


def test_what_has_no_source_has_no_file(package, monkeypatch):
    monkeypatch.setitem(sys.modules, "made_in_a_notebook", ModuleType("made_in_a_notebook"))
    assert package("made_in_a_notebook") == []
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
    assert [len(digest) for digest in digests] == [16, 16]
