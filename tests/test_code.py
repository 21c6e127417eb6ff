import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.cases import slow_but

from farther import code, tables
from farther.code import (
    PACKAGES,
    WITHOUT_EFFECT,
    Sources,
    defines,
    digest_of,
    modules_of,
    packages_of,
    registered,
    source_files,
)
from farther.datasets.base import FORMATS
from farther.derived.base import KINDS
from farther.derived.cutouts import SOURCES
from farther.detectors.base import registry as detectors
from farther.methods.base import METHODS
from farther.pipeline.code_digests import _adapter_digests, code_digests, stage_starts
from farther.pipeline.stages import STAGES
from farther.syntax import registrations
from farther_training.trainers import registry as trainers

ROOT = Path(__file__).parents[1]

FILES = {
    "zoo/__init__.py": "",
    "zoo/adapter.py": (
        "import json\nfrom zoo import base\nfrom zoo.names import label\nfrom .layers import norm\n"
    ),
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
    "zoo/typed.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from zoo.names import label\n"
    ),
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
    "zoo/market/stalls.py": (
        "import json, numpy.fft\nfrom .prices import sums\n@register('stall')\nclass Stall: ...\n"
    ),
    "zoo/market/prices.py": (
        "import scipy.special\nfrom farther.errors import DataError\nfrom zoo import names\n"
    ),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda module: [
        str(path.relative_to(tmp_path)) for path in source_files(module, packages=["zoo"]).values()
    ]
    for name in [name for name in sys.modules if name.split(".")[0] == "zoo"]:
        del sys.modules[name]


def test_imports_are_followed_within_the_package_also_those_inside_functions_and_relative_ones(
    package,
):
    assert package("zoo.adapter") == [
        "zoo/adapter.py",
        "zoo/base.py",
        "zoo/layers/norms.py",
        "zoo/lazy.py",
        "zoo/names.py",
    ]


def test_a_module_outside_of_the_package_counts_with_what_it_takes_from_it(package):
    assert package("own") == ["own.py", "zoo/names.py"]


def test_modules_that_import_each_other_end(package):
    assert package("zoo.lazy") == ["zoo/base.py", "zoo/lazy.py"]


def test_a_name_that_a_package_takes_from_a_module_leads_to_that_module_only(package):
    assert package("priced") == ["priced.py", "zoo/shop/sell.py"]
    assert package("shopping") == [
        "shopping.py",
        "zoo/shop/__init__.py",
        "zoo/shop/buy.py",
        "zoo/shop/sell.py",
    ]


def test_a_name_that_a_package_loads_lazily_may_come_from_any_of_its_modules(package):
    assert package("lazy_user") == ["lazy_user.py", "zoo/lazily/__init__.py", "zoo/lazily/one.py"]


def test_a_name_that_a_package_defines_leads_to_none_of_its_modules(package):
    read = ["zoo/shop/__init__.py", "zoo/shop/buy.py", "zoo/shop/sell.py"]
    assert package("eager_user") == ["eager_user.py", "zoo/lazily/__init__.py", *read]


def test_modules_of_a_package_their_names_and_what_they_import(package, tmp_path):
    assert modules_of("zoo.market") == ["zoo.market", "zoo.market.prices", "zoo.market.stalls"]
    assert registered("zoo.market") == {"stall": "zoo.market.stalls"}
    assert [entry.name for entry in registrations(tmp_path / "zoo/market/stalls.py")] == ["stall"]
    assert packages_of("zoo.market.stalls") == {"numpy", "scipy", "zoo"}


@pytest.mark.parametrize("module", [stage.module for stage in STAGES if stage.module])
def test_the_checks_of_a_stage_do_not_count(module):
    followed = source_files(module)
    assert not [name for name in followed if ".check" in name or "doctor" in name]
    assert module in followed


def test_imports_for_type_checkers_do_not_count(package):
    assert package("zoo.typed") == ["zoo/typed.py"]


def test_data_files_that_a_module_names_count_with_it(package):
    assert package("zoo.data") == [
        "zoo/data/pages/index.html",
        "zoo/data/table.yaml",
        "zoo/data/__init__.py",
    ]


def test_a_registry_and_the_digests_of_code_agree_on_the_modules_of_names():
    assert METHODS.modules["vim"] == "farther.methods.vim"
    for registry in (METHODS, FORMATS, detectors, trainers):
        assert registry.modules == registered(registry.written.package)
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
def test_comments_docstrings_and_layout_change_no_digest(
    tmp_path, monkeypatch, before, after, same
):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "lone_module_of_this_test.py"
    digests = []
    for text in (before, after):
        module.write_text(
            text + "\n" * len(digests)
        )  # another size, also within one tick of the clock
        digests.append(digest_of(module.stem))
    assert (digests[0] == digests[1]) is same
    assert [len(digest) for digest in digests] == [16, 16]


def test_summaries_are_the_first_paragraphs_of_docstrings():
    assert METHODS.summaries.keys() == METHODS.modules.keys()
    cls = METHODS.get("vim")
    assert METHODS.summaries["vim"] == " ".join(cls.__doc__.split("\n\n")[0].split())


# Files of one name, and scripts with the modules of their stages.


def test_files_of_one_name_do_not_replace_each_other(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helpers.py").write_text(f"x = '{folder}'\n")
    scripts = [tmp_path / "one/helpers.py", tmp_path / "two/helpers.py"]
    assert source_files(*scripts) == {"helpers.py": scripts[0], "two/helpers.py": scripts[1]}
    before = digest_of(*scripts)
    scripts[0].write_text("x = 'changed'\n")
    changed = digest_of(*scripts)
    scripts[1].write_text("x = 'changed, too'\n")
    assert len({before, changed, digest_of(*scripts)}) == 3


def test_a_stage_counts_its_script_its_module_and_what_both_import(tmp_path):
    script = tmp_path / "curate.py"
    script.write_text("from farther.derived.masks import *\n")
    starts = stage_starts([script])
    assert starts["curate"] == ["farther.pipeline.curate", script]
    assert {"curate.py", "farther.pipeline.curate", "farther.derived.masks"} <= source_files(
        *starts["curate"]
    ).keys()
    before = code_digests({"curate": starts["curate"]})["curate"]
    script.write_text("from farther.derived.masks import *\nprint(1)\n")
    assert code_digests({"curate": starts["curate"]})["curate"] != before


def test_the_stages_are_the_modules_that_have_a_main():
    starts = stage_starts()
    assert {"ingest", "curate", "infer", "report"} <= starts.keys()
    assert not {"code_digests", "stage_server", "inspection", "named_files"} & starts.keys()


# Extensions count whole.

METHOD = "from farther import Method, register\n@register('{name}')\nclass Own(Method): ...\n"


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """The folder of extensions: a method, an adapter, and the files that they import and read."""
    monkeypatch.chdir(tmp_path)
    files = {
        "area.py": "from .base import F\n" + METHOD.format(name="area"),
        "base.py": "F = 1\n" + METHOD.format(name="base"),
        "inner/deep/factors.py": "F = 2\n",
        "words.json": "[1]",
        "inner/helpers.py": "import project_code\n",
        ".hidden": "1",
        "__pycache__/area.pyc": "1",
    }
    for name, text in files.items():
        file = tmp_path / "extensions" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "project_code.py").write_text("VALUE = 1\n")
    return tmp_path / "extensions"


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("base.py", True),  # registers a name itself, and is imported by another file that does
        ("inner/deep/factors.py", True),
        ("words.json", True),
        ("../project_code.py", True),
        ("new.txt", True),
        (".hidden", False),
        ("__pycache__/area.pyc", False),
        ("../notes.txt", False),
    ],
)
def test_every_file_of_the_extensions_counts_with_each_of_their_names(own, file, counts):
    before = code_digests(
        {"infer": ["farther.pipeline.infer"], "evaluate": ["farther.pipeline.evaluate"]}
    )
    with (own / file).open("a") as opened:
        opened.write("\nMORE = 1\n")
    after = code_digests(
        {"infer": ["farther.pipeline.infer"], "evaluate": ["farther.pipeline.evaluate"]}
    )
    places = [
        ("infer", "area"),
        ("kept", "fit", "area"),
        ("kept", "score", "area"),
        ("kept", "user_defined", "base"),
    ]
    for place in [*places, ("evaluate",)]:
        was, now = before, after
        for key in place:
            was, now = was[key], now[key]
        assert (was != now) is counts, place
    assert before["infer"]["yolo"] == after["infer"]["yolo"]
    assert before["kept"]["score"]["knn"] == after["kept"]["score"]["knn"]


def test_a_renamed_file_of_the_extensions_counts(own):
    before = digest_of("extensions.area")
    (own / "words.json").rename(own / "other.json")
    assert digest_of("extensions.area") != before


def test_a_file_in_a_folder_of_extensions_that_is_not_python_counts_by_its_bytes(own):
    (own / "inner/template.py").write_text("{{ not python }}\n")
    before = digest_of("extensions.area")
    (own / "inner/template.py").write_text("{{ nor this }}\n")
    assert digest_of("extensions.area") != before


# Edits of a copy of the library.


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """A copy of the library's files."""
    lib = tmp_path_factory.mktemp("copy") / "lib"
    shutil.copytree(ROOT / "lib", lib, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return lib


@pytest.fixture
def library(copied, tmp_path, monkeypatch) -> Iterator[Path]:
    """The copy, whose code the digests are of; edited files are put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "__file__", str(copied / "farther/code.py"))
    yield copied
    for file in copied.rglob("*"):
        original = ROOT / "lib" / file.relative_to(copied)
        if file.is_file() and file.suffix != ".pyc" and file.read_bytes() != original.read_bytes():
            file.write_bytes(original.read_bytes())


STARTS = {
    stage: [f"farther.pipeline.{stage}"]
    for stage in ("derive", "ingest", "curate", "infer", "embed", "report")
}


def changed_by(library: Path, file: str, old: str, new: str) -> set[str]:
    """The stages whose digests an edit of a file changes."""
    before = code_digests(STARTS)
    text = (library / file).read_text()
    assert old in text
    (library / file).write_text(text.replace(old, new, 1))
    after = code_digests(STARTS)
    return {stage for stage in STARTS if before[stage] != after[stage]}


#: Modules of `WITHOUT_EFFECT` of each layer.
TYPICAL = ("farther", "farther.keyed", "farther.registry", "farther.tables.writing")


@pytest.mark.parametrize("module", slow_but(TYPICAL, sorted(WITHOUT_EFFECT)))
def test_an_edit_of_what_only_moves_bytes_reruns_nothing(library, module):
    folder = module.replace(".", "/")
    is_package = (library / folder).is_dir()
    file = f"{folder}/__init__.py" if is_package else f"{folder}.py"
    counts = set()
    if module in ("farther", "farther.metrics") or module.startswith("farther.methods."):
        counts = {"report"}  # its version, all metrics, and all methods
    assert (
        changed_by(
            library, file, "\nimport importlib" if is_package else "\nfrom __future__", "\nx = 1\n#"
        )
        == counts
    )


def test_packages_that_import_what_is_named_count_nowhere():
    """A stage that names a module of such a package runs its `__getattr__`, and reaches only it."""
    lazy = [
        module
        for package in PACKAGES
        for module in modules_of(package)
        if defines(module, "__getattr__")
    ]
    assert set(lazy) <= set(WITHOUT_EFFECT)
    assert {"farther", "farther.metrics", "farther.tables"} <= set(lazy)


def test_digests_follow_the_names_of_tables_to_the_modules_that_they_are_imported_from():
    sources = Sources()
    for name in tables.__all__:
        module = tables._MODULES.get(name, "annotations")
        assert sources._modules_of_import("farther.tables", name) == [f"farther.tables.{module}"]


def test_an_edit_of_what_computes_reruns_what_reaches_it(library):
    edit = "\nEDITED = 1\nfrom __future__"
    assert changed_by(library, "farther/tables/content.py", "\nfrom __future__", edit) == set(
        STARTS
    )
    assert changed_by(library, "farther/images/stream.py", "\nfrom __future__", edit) >= {
        "infer",
        "embed",
    }


def test_a_docstring_counts_in_the_report_alone_which_prints_it(library):
    vim = (library / "farther/methods/vim.py").read_text()
    first_word = vim.split('"""')[3].split()[0]
    assert changed_by(
        library, "farther/methods/vim.py", f'    """{first_word}', '    """Edited'
    ) == {"report"}
    before = digest_of("farther.methods.vim")
    (library / "farther/methods/vim.py").write_text(vim)
    assert digest_of("farther.methods.vim") == before


def test_a_check_in_a_module_of_a_stage_counts(library):
    edit = "\ndef check_others(): ...\nfrom __future__"
    assert changed_by(library, "farther/pipeline/embed.py", "\nfrom __future__", edit) == {"embed"}


# Classes that are created by name.


def test_a_module_that_creates_by_name_reaches_the_classes_whose_names_are_texts_in_it():
    assert "farther.datasets.coco" in source_files("farther.datasets.unlabelled")
    assert {"farther.methods.entropy", "farther.methods.box_uncertainty"} <= source_files(
        "farther.evaluation.image_uncertainties"
    ).keys()
    assert "farther.methods.knn" not in source_files("farther.evaluation.evaluate")
    assert "farther.detectors.yolo" not in source_files("farther.detectors.faster_rcnn")


def test_an_extension_that_creates_by_name_reaches_the_class(own):
    (own / "area.py").write_text(
        "import farther.methods\nfarther.methods.create('knn')\n" + METHOD.format(name="area")
    )
    assert "farther.methods.knn" in source_files("extensions.area")


def test_the_code_of_other_adapters_that_a_run_names_counts_with_the_run(library):
    entry = {
        "adapter": "repeated",
        "params": {"of": "yolo"},
        "proposals": {"sam": {"adapter": "parquet"}},
    }
    adapters = {"repeated": "1", "yolo": "2", "parquet": "3", "detr": "4"}
    assert _adapter_digests(entry, adapters) == ["parquet 3", "yolo 2"]
    assert _adapter_digests({"adapter": "yolo"}, adapters) == []
