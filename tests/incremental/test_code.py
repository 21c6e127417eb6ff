"""Digests of code: what counts with a package, with a name, and with extensions."""

import ast
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from farther.datasets.base import FORMATS
from farther.derived.base import KINDS
from farther.derived.cutouts import SOURCES
from farther.detectors.base import registry as detectors
from farther.errors import ParameterError
from farther.incremental import code
from farther.incremental.code import (
    IMPORTED,
    IMPORTS,
    PACKAGES,
    REGISTERING,
    SourceCode,
    modules_digest,
    package_digest,
    version_digest,
)
from farther.incremental.stage_digests import (
    KEPT,
    PIPELINE_MODULES,
    STAGE_CODE,
    StageDigests,
    path_of,
    value_at,
)
from farther.methods.base import METHODS
from farther.naming.extras import packages_of
from farther_training.trainers import registry as trainers

ROOT = Path(__file__).parents[2]


# What the tables of packages say is what the modules do.


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """The imports between all modules of farther."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def package_of(module: str) -> str:
    """The package of a module, as `IMPORTS` calls it: "detectors", "farther_demo"."""
    top, _, inner = module.partition(".")
    if top != "farther":
        return top
    return inner.partition(".")[0]


def test_the_table_of_imports_is_what_the_modules_import(graph):
    imports = {package: set() for package in IMPORTS}
    for module in graph.modules:
        package = package_of(module)
        if package in imports:
            for imported in graph.find_modules_directly_imported_by(module):
                imports[package].add(package_of(imported))
    for package, imported in imports.items():
        assert imported & IMPORTS.keys() - {package} == set(IMPORTS[package]), package


def test_modules_with_names_count_with_their_package_where_other_modules_use_them(graph):
    source = SourceCode()
    imported = set()
    for package in REGISTERING:
        for name, module in source.registered(package).items():
            users = set(graph.find_modules_that_directly_import(module))
            users |= creators_of(name, package)
            for user in users - {module}:
                if package_of(user) in IMPORTS and not is_of_training(user, module):
                    imported.add(module)
    assert imported == set(IMPORTED)


def is_of_training(user: str, module: str) -> bool:
    """Whether a module is imported by training alone, which depends on all detectors."""
    return user.startswith("farther_training.") and module.startswith("farther.detectors.")


def creators_of(name: str, package: str) -> set[str]:
    """The modules of farther that call `create` and have a name of a package as a text."""
    creators = set()
    for module, (texts, imports) in modules_that_create().items():
        belongs = module.startswith(f"farther.{package}.")
        if name in texts and (belongs or f"from farther.{package} import" in imports):
            creators.add(module)
    return creators


@cache
def modules_that_create() -> dict[str, tuple[set[str], str]]:
    """The texts in each module that calls `create`, and its source."""
    modules = {}
    for file in (ROOT / "lib/farther").rglob("*.py"):
        source = file.read_text()
        if "create(" not in source:
            continue
        nodes = list(ast.walk(ast.parse(source)))
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        called = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
        if "create" in called:
            texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
            module = ".".join(file.relative_to(ROOT / "lib").with_suffix("").parts)
            modules[module] = (texts, source)
    return modules


@pytest.mark.parametrize("stage", [stage for stage in STAGE_CODE if stage not in ("demo", "train")])
def test_a_stage_counts_the_packages_that_its_modules_import(graph, stage):
    code_of_stage = STAGE_CODE[stage]
    reached = set()
    for name in (stage, *code_of_stage.modules):
        module = f"farther.pipeline.{name}"
        if module in graph.modules:
            reached |= {
                package_of(imported) for imported in graph.find_modules_directly_imported_by(module)
            }
    files = StageDigests({}).code_files(stage)
    counted = {label.split("/")[1] for label in files if label.count("/") > 1}
    assert reached & IMPORTS.keys() <= counted


def test_modules_of_the_pipeline_that_work_for_no_stage_are_imported_by_none(graph):
    for name in set(PIPELINE_MODULES) - STAGE_CODE.keys():
        module = f"farther.pipeline.{name}"
        assert module in graph.modules, name
        users = {
            user.rpartition(".")[2] for user in graph.find_modules_that_directly_import(module)
        }
        for stage, code_of_stage in STAGE_CODE.items():
            assert stage not in users or name in code_of_stage.modules


def test_a_registry_and_the_digests_of_code_agree_on_the_modules_of_names():
    source = SourceCode()
    assert source.registered("methods") == METHODS.modules
    assert source.registered("datasets") == FORMATS.modules
    assert source.registered("detectors") == detectors.modules
    assert source.registered("farther_training/trainers") == trainers.modules
    assert source.registered("derived") == KINDS.modules | SOURCES.modules


def test_names_are_found_without_parsing_as_they_are_by_parsing():
    for registry in (METHODS, FORMATS, detectors, trainers, KINDS, SOURCES):
        assert registry.modules.keys() == registry.written.registrations.keys()


def test_summaries_are_the_first_paragraphs_of_docstrings():
    assert METHODS.summaries.keys() == METHODS.modules.keys()
    cls = METHODS.get("vim")
    assert METHODS.summaries["vim"] == " ".join(cls.__doc__.split("\n\n")[0].split())


def test_the_packages_that_a_module_needs_are_those_that_it_and_its_package_import():
    assert {"torch", "ultralytics"} <= packages_of("farther.detectors.yolo")
    assert "torch" not in packages_of("farther.methods.msp")


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
    monkeypatch.setattr(code, "__file__", str(copied / "farther/incremental/code.py"))
    yield copied
    for file in copied.rglob("*"):
        original = ROOT / "lib" / file.relative_to(copied)
        if file.is_file() and file.suffix != ".pyc" and file.read_bytes() != original.read_bytes():
            file.write_bytes(original.read_bytes())


def changed_by(file: Path) -> set[str]:
    """The digests that an edit of a file changes: "fit", "infer.yolo", "kept.fit.knn"."""
    before = flat(StageDigests({}).all())
    with file.open("ab") as opened:
        opened.write(b"\n# a comment\n")
    after = flat(StageDigests({}).all())
    assert before.keys() == after.keys()
    return {key for key in before if before[key] != after[key]}


def flat(digests: dict, *keys: str) -> dict[str, str]:
    """The digests by the keys that lead to them, joined by dots."""
    digest_by_key = {}
    for key, value in digests.items():
        if isinstance(value, dict):
            digest_by_key |= flat(value, *keys, key)
        elif isinstance(value, str):
            digest_by_key[".".join([*keys, key])] = value
    return digest_by_key


def test_a_method_counts_where_it_is_named_and_in_stages_that_run_all_methods(library):
    assert changed_by(library / "farther/methods/gen.py") == {
        "fit",
        "score",
        "evaluate",
        "choose",
        "report",
        "kept.fit.gen",
        "kept.score.gen",
    }


def test_an_adapter_counts_with_its_runs(library):
    changed = changed_by(library / "farther/detectors/yolo.py")
    assert {key for key in changed if not key.startswith("train.")} == {"infer.yolo", "choose"}


def test_a_format_counts_with_its_datasets(library):
    changed = changed_by(library / "farther/datasets/voc.py")
    assert changed == {"ingest.voc"}


def test_a_module_of_one_stage_counts_with_it_alone(library):
    assert changed_by(library / "farther/pipeline/curate.py") == {"curate"}


def test_a_module_at_the_top_level_counts_everywhere(library):
    changed = changed_by(library / "farther/errors.py")
    digests = flat(StageDigests({}).all())
    assert changed == {key for key in digests if not key.startswith("files.")}


def test_a_shared_module_and_data_beside_it_count_in_all_stages_that_may_import_their_package(
    library,
):
    for file in ("metrics/weighting.py", "metrics/catalogue/metrics.yaml"):
        changed = changed_by(library / "farther" / file)
        assert {"fit", "evaluate", "report", "embed", "kept.evaluate", "kept.fit.knn"} <= changed
        assert not {"curate", "ingest.voc", "infer.yolo"} & changed


def test_a_new_file_counts_and_a_compiled_one_does_not(library):
    before = package_digest("images")
    (library / "farther/images/__pycache__").mkdir(exist_ok=True)
    (library / "farther/images/__pycache__/read.pyc").write_bytes(b"1")
    assert package_digest("images") == before
    new = library / "farther/images/added.txt"
    new.write_text("1")
    assert package_digest("images") != before
    new.unlink()


def test_a_digest_of_modules_is_that_of_their_packages_and_of_the_modules_themselves(library):
    yolo = modules_digest("farther.detectors.yolo")
    detr = modules_digest("farther.detectors.detr")
    assert yolo != detr
    with (library / "farther/detectors/detr.py").open("a") as file:
        file.write("# a comment\n")
    assert modules_digest("farther.detectors.yolo") == yolo
    assert modules_digest("farther.detectors.detr") != detr
    with (library / "farther/images/read.py").open("a") as file:
        file.write("# a comment\n")
    assert modules_digest("farther.detectors.yolo") != yolo


def test_a_script_counts_with_its_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Path("curate.py")
    script.write_text("x = 1\n")
    before = StageDigests({}, [script]).all()
    script.write_text("x = 2\n")
    after = StageDigests({}, [script]).all()
    assert {key for key in before if before[key] != after[key]} == {"curate"}


def test_every_kept_result_has_a_digest():
    digests = StageDigests({}).all()
    assert digests["kept"].keys() == KEPT.keys()
    assert digests["kept"]["fit"].keys() == METHODS.modules.keys()


# Extensions count whole.

METHOD = "from farther import Method, register\n@register('{name}')\nclass Own(Method): ...\n"
WATCHING = "WATCHED = ['tools/weights.json', 'tables']\n"


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """The folder of extensions: methods, and the files that they import and read."""
    monkeypatch.chdir(tmp_path)
    files = {
        "area.py": f"from .base import F\n{WATCHING}" + METHOD.format(name="area"),
        "base.py": "F = 1\n" + METHOD.format(name="base"),
        "inner/deep/factors.py": "F = 2\n",
        "inner/template.py": "{{ not python }}\n",
        "words.json": "[1]",
        "inner/helpers.py": "import project_code, shop\nimport_module('late.code')\n",
        ".hidden": "1",
        "README.md": "1",
        "__pycache__/area.pyc": "1",
        "../project_code.py": "import further.code\n",
        "../further/code.py": "",
        "../shop/__init__.py": "",
        "../shop/prices.csv": "1",
        "../shop/.hidden": "1",
        "../late/code.py": "",
        "../tools/weights.json": "1",
        "../tables/inner/a.csv": "1",
        "../notes.txt": "1",
        "../unused.py": "1",
    }
    for name, text in files.items():
        file = tmp_path / "extensions" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "extensions"


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("base.py", True),  # registers a name itself, and is imported by another file that does
        ("inner/deep/factors.py", True),
        ("inner/template.py", True),
        ("words.json", True),
        ("new.txt", True),
        (".hidden", True),
        ("../project_code.py", True),
        ("../further/code.py", True),  # imported by a module of the project
        ("../shop/prices.csv", True),
        ("../shop/.hidden", True),
        ("../late/code.py", True),
        ("../tools/weights.json", True),  # declared
        ("../tables/inner/a.csv", True),
        ("README.md", False),
        ("__pycache__/area.pyc", False),
        ("../notes.txt", False),
        ("../unused.py", False),
    ],
)
def test_every_file_of_the_extensions_counts_with_each_of_their_names(own, file, counts):
    if file == "new.txt":
        (own / file).touch()
        before = flat(StageDigests({}).all())
        (own / file).unlink()
        after = flat(StageDigests({}).all())
        changed = {key for key in before if before[key] != after[key]}
    else:
        changed = changed_by(own / file)
    with_extensions = {"fit", "score", "evaluate", "choose", "report", "infer.area"}
    with_extensions |= {"kept.fit.area", "kept.score.area", "kept.user_defined.base"}
    assert with_extensions <= changed if counts else not changed
    assert not {"infer.yolo", "curate", "kept.score.knn", "kept.evaluate"} & changed


def test_a_renamed_file_of_the_extensions_counts(own):
    before = modules_digest("extensions.area")
    (own / "words.json").rename(own / "other.json")
    assert modules_digest("extensions.area") != before


def test_a_name_of_extensions_counts_any_method_and_detector_which_it_may_import(own, library):
    (library.parent / "extensions").mkdir(exist_ok=True)
    changed = changed_by(library / "farther/methods/gen.py")
    assert {"infer.area", "kept.fit.area"} <= changed


def test_a_version_is_of_all_code(own):
    before = version_digest()
    (own / "words.json").write_text("[2]")
    assert version_digest() != before


@pytest.mark.parametrize(
    "text", ["WATCHED = 3", "WATCHED = [1]", "WATCHED = 'tools'", "WATCHED = f()"]
)
def test_declared_files_that_are_no_list_of_texts_are_refused(own, text):
    (own / "area.py").write_text(text)
    with pytest.raises(ParameterError, match=r"area\.py: .*WATCHED.*write WATCHED = \["):
        StageDigests({}).all()


# Digests of entries of params.yaml.

RUN = {
    "adapter": "yolo",
    "benchmark": "voc",
    "weights": "a.pt",
    "title": "A",
    "params": {"x": [1, 2]},
}


def entry_digest(**changes) -> str:
    """The digest of a run with some other keys."""
    return StageDigests({"detectors": {"a": {**RUN, **changes}}}).at("detectors", "a")


def test_a_title_and_the_order_of_keys_change_no_digest_of_an_entry():
    assert entry_digest(title="B") == entry_digest()
    reversed_entry = dict(reversed(RUN.items()))
    assert StageDigests({"detectors": {"a": reversed_entry}}).at("detectors", "a") == entry_digest()


@pytest.mark.parametrize(
    "changes", [{"params": {"x": [2, 1]}}, {"weights": "b.pt"}, {"classes": {}}]
)
def test_any_other_change_changes_the_digest_of_an_entry(changes):
    assert entry_digest(**changes) != entry_digest()


def test_an_entry_counts_files_that_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("1")
    before = entry_digest(params={"words": "words.txt"})
    Path("words.txt").write_text("2")
    assert entry_digest(params={"words": "words.txt"}) != before


def test_a_run_counts_the_code_of_other_adapters_that_it_names(library):
    def digests() -> list[str]:
        return [
            entry_digest(adapter="repeated", params={"of": "detr"}),
            entry_digest(proposals={"sam": {"adapter": "detr"}}),
            entry_digest(adapter="detr"),
        ]

    before = digests()
    with (library / "farther/detectors/detr.py").open("a") as file:
        file.write("# a comment\n")
    after = digests()
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert before[2] == after[2]  # the stage depends on its own adapter's digest


def test_digests_can_be_asked_for_one_by_one():
    params = {
        "detectors": {"a": RUN},
        "derived": {"paste": {"p": {}}},
        "benchmarks": {"voc": {}},
        "datasets": {"voc": {"root": "voc"}},
        "methods": {"knn": {}},
    }
    digests = StageDigests(params).all()
    for key in flat(digests):
        path = path_of(digests, key)
        assert StageDigests(params).at(*path) == value_at(digests, path), key


def test_names_may_have_dots():
    digests = {"files": {"detectors": {"v1.5": "1", "v1": "2"}}, "fit": "3"}
    assert path_of(digests, "files.detectors.v1.5") == ("files", "detectors", "v1.5")
    assert path_of(digests, "fit") == ("fit",)
    assert value_at(digests, path_of(digests, "infer.yolo")) is None
