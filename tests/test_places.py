"""What is added to farther is in all of its places.

Each test is about one kind. It names the places that lack a name, and what to write there.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from farther import datasets, detectors, methods
from farther.datasets.base import FORMATS
from farther.detectors.adapter import registry
from farther.evaluation import groups
from farther.evaluation.groups import GROUPS
from farther.evaluation.groups.base import MetricGroup
from farther.incremental.stage_digests import STAGE_CODE
from farther.methods.base import METHODS
from farther.metrics.catalogue import METRICS, Metric
from farther.pipeline.stages import STAGES
from farther.report import pages
from farther.report.pages import PAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

#: The section of docs/methods.md that names the methods of other libraries.
PEERS = "Beside pytorch-ood and OpenOOD"
#: Formats that `farther init` does not recognise, and why.
KNOWN_BY_NAME = "a published dataset, whose name users know"
UNRECOGNISED_FORMATS = {
    **dict.fromkeys(("bdd", "cifar", "fmiyc", "inaturalist", "mnist", "mvtec"), KNOWN_BY_NAME),
    **dict.fromkeys(("nuimages", "objects365", "openimages", "sun397", "svhn"), KNOWN_BY_NAME),
    **dict.fromkeys(("svhn_cropped", "tiny_imagenet", "unsniffer", "vos"), KNOWN_BY_NAME),
    "imglist": "the lists of OpenOOD's benchmarks name images of several datasets",
}
#: Adapters that `farther init` does not try, and why.
UNRECOGNISED_ADAPTERS = {
    **dict.fromkeys(("mask_rcnn", "retinanet", "fcos", "ssd"), "recognised by faster_rcnn"),
    "one_class": "runs another detector",
    "repeated": "runs another detector",
}
#: Adapters whose files are not damaged, and why.
UNDAMAGED_ADAPTERS = {
    **dict.fromkeys(("mask_rcnn", "retinanet", "fcos", "ssd"), "read as those of faster_rcnn"),
    "one_class": "reads no file",
    "onnx": "damaged in tests/detectors/test_onnx.py",
    "repeated": "runs another detector",
}


def text(*path: str) -> str:
    return (ROOT.joinpath(*path)).read_text(encoding="utf-8")


def refuse(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_a_score_is_in_the_docs():
    problems = []
    page = text("docs", "methods.md")
    table, _, rest = page.partition(f"### {PEERS}\n")
    beside_peers = rest.partition("\n## ")[0]
    for name in methods.names():
        module = METHODS.modules[name]
        if f"`{name}`" not in table:
            problems.append(
                f"docs/methods.md: `{name}` of {module}, by `python -m tests.docs.render`"
            )
        if f"`{name}`" not in beside_peers:
            problems.append(f"docs/methods.md: `{name}` of {module}, in the section {PEERS!r}")
    refuse(problems)


def test_a_dataset_format_is_damaged_and_recognised_by_init():
    targets = set(re.findall(r'\bdataset\(\s*"(\w+)"', text("tests", "disturbed", "targets.py")))
    recognised = FORMATS.defining("recognises")
    problems = []
    for name in datasets.names():
        module = FORMATS.modules[name]
        if name not in targets:
            problems.append(
                f'tests/disturbed/targets.py: dataset("{name}", …) with a small folder of {module}'
            )
        if name not in recognised and name not in UNRECOGNISED_FORMATS:
            problems.append(
                f"{module}: `recognises` in the class {name!r}, with a test in "
                "tests/projects/test_recognise.py; or in UNRECOGNISED_FORMATS of this file, why not"
            )
    refuse(problems)


def test_an_adapter_is_in_the_docs_damaged_and_recognised_by_init():
    damaged = ""
    for file in sorted((ROOT / "tests" / "disturbed").rglob("*.py")):
        damaged += file.read_text(encoding="utf-8")
    page = text("docs", "detectors.md") + text("docs", "imported-detections.md")
    recognised = registry.defining("recognises")
    problems = []
    for name in detectors.names():
        module = registry.modules[name]
        if f"`{name}`" not in page:
            problems.append(
                f"docs/detectors.md or docs/imported-detections.md: what `{name}` of {module} reads"
            )
        if f'"{name}"' not in damaged and name not in UNDAMAGED_ADAPTERS:
            problems.append(
                f"tests/disturbed/targets.py: a target with a small file that {module} reads; or "
                "in UNDAMAGED_ADAPTERS of this file, why not"
            )
        if name not in recognised and name not in UNRECOGNISED_ADAPTERS:
            problems.append(
                f"{module}: `recognises` in the class {name!r}, with a test in "
                "tests/projects/test_recognise_detector.py; or in UNRECOGNISED_ADAPTERS of this "
                "file, why not"
            )
    refuse(problems)


def test_reasons_for_what_is_not_recognised_are_of_names_that_there_are():
    recognised = {*FORMATS.defining("recognises"), *registry.defining("recognises")}
    assert set(UNRECOGNISED_FORMATS) <= set(datasets.names()) - recognised
    assert set(UNRECOGNISED_ADAPTERS) <= set(detectors.names()) - recognised
    assert set(UNDAMAGED_ADAPTERS) <= set(detectors.names())


def test_a_group_of_metrics_is_evaluated_and_described():
    problems = []
    for module in iter_modules(groups.__path__, f"{groups.__name__}."):
        for _, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            is_group = issubclass(cls, MetricGroup) and not inspect.isabstract(cls)
            if is_group and cls.__module__ == module.name and cls.name not in GROUPS:
                problems.append(f"farther.evaluation.groups: {cls.__name__}() in _IN_ORDER")
    # Metrics of other sections are not of a method on a split.
    other_sections = re.findall(r'"(\w+)"', inspect.getdoc(Metric) or "")
    for name, metric in METRICS.items():
        if metric.group not in {*GROUPS, *other_sections}:
            problems.append(
                f"lib/farther/evaluation/groups/{metric.group}.py: a MetricGroup with the metric "
                f"{name!r}, and its instance in _IN_ORDER"
            )
    for group in GROUPS.values():
        for key in group.columns:
            if f"{group.prefix}{key}" not in METRICS:
                problems.append(
                    f"lib/farther/metrics/catalogue/metrics.yaml: {key} in section {group.name}"
                )
    refuse(problems)


def test_a_stage_is_in_the_recipe_and_has_a_digest_of_code():
    recipe = text("dvc.yaml")
    small_demo = text("tests", "disturbed", "valid", "pipeline.py")
    problems = []
    for stage in STAGES:
        if stage.name not in ("code", *STAGE_CODE):
            problems.append(f"farther.incremental.stage_digests: STAGE_CODE[{stage.name!r}]")
        if f"stages/{stage.script}" not in recipe:
            problems.append(f"dvc.yaml: the stage {stage.name}, which runs stages/{stage.script}")
        if stage.section is not None and f'"{stage.section}":' not in small_demo:
            problems.append(
                f"tests/disturbed/valid/pipeline.py: in ARGUMENTS, entries of {stage.section!r} "
                f"that stages/{stage.script} is killed with"
            )
    refuse(problems)


def test_a_page_of_the_report_is_described():
    report = text("docs", "report.md")
    known_modules = {page.write.__module__ for page in PAGES}
    problems = []
    for page in PAGES:
        if f"`{page.file}`" not in report:
            problems.append(f"docs/report.md: what {page.title}, `{page.file}`, shows")
    for module in iter_modules(pages.__path__, f"{pages.__name__}."):
        content = import_module(module.name)
        if hasattr(content, "write") and module.name not in known_modules:
            problems.append(f"farther.report.pages: Page(…, {module.name}.write) in PAGES")
    refuse(problems)
