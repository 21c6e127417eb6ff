"""Hooks of the docs: references made from the code, weights in the search, and the page 404."""

from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from farther.datasets.base import FORMATS
from farther.detectors.base import registry as adapters
from farther.methods.reference import sections
from farther.metrics.catalogue import METRICS
from farther.naming.registry import Registry
from farther.pipeline.described_keys import tables_of_schema
from farther.pipeline.params_reference import reference as reference_of_params
from farther.pipeline.params_schema import Schemas
from farther.text.documentation import Parameter, describe
from farther_demo import DemoWorld

#: Weight of the pages of the Python API in the search; other pages have 1. The search weighs a
#: title 1,000 times as much as a text, and each function of the API is a title.
API_WEIGHT = 0.0001

#: The direction in which a metric is better, by its `higher_is_better`.
DIRECTIONS = {True: "higher", False: "lower", None: "–"}

#: Sections of docstrings that are for callers in Python.
FOR_PYTHON = ("Args", "Attributes", "Raises", "Returns", "Example")


def params() -> str:
    """All keys of params.yaml."""
    schemas = Schemas()
    return reference_of_params({"demo": tables_of_schema("demo", schemas.of(DemoWorld), schemas)})


def registered(registry: Registry) -> str:
    """The parameters that all classes of a registry share, and one section per class."""
    described_by_name = {name: describe(registry.get(name)) for name in registry.names()}
    first, *others = described_by_name.values()
    shared = [one for one in first.parameters if all(one in other.parameters for other in others)]
    parts = []
    if shared:
        parts += ["All have these parameters:", _table(shared)]
    for name, described in described_by_name.items():
        parts += [f"### {name}", described.summary, described.text]
        for title, text in described.sections.items():
            if title not in FOR_PYTHON:
                parts.append(f"{title}: {text}")
        parts.append(_table([one for one in described.parameters if one not in shared]))
    return "\n\n".join(part for part in parts if part) + "\n"


def trainers() -> str:
    """One section per trainer, with a table of its recipe."""
    from farther_training.trainers import registry  # imports PyTorch

    text = registered(registry)
    for name in registry.names():
        recipe = get_type_hints(registry.get(name))["recipe"]
        heading = f"### {name}\n"
        before, _, after = text.partition(heading)
        section, separator, rest = after.partition("\n### ")
        section += f"\n\nIts recipe:\n\n{_table(describe(recipe).parameters)}\n"
        text = before + heading + section + separator + rest
    return text


def _table(parameters: Sequence[Parameter]) -> str:
    """A table of parameters; "" if there are none."""
    if not parameters:
        return ""
    lines = ["| parameter | default | meaning |", "| --- | --- | --- |"]
    for parameter in parameters:
        meaning = parameter.description.replace("|", "\\|")
        lines.append(f"| `{parameter.name}` | `{parameter.default}` | {meaning} |")
    return "\n".join(lines)


def metrics() -> str:
    """All metrics with their definitions."""
    lines = [
        "| metric | in reports | better | meaning | source |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, metric in METRICS.items():
        better = DIRECTIONS[metric.higher_is_better]
        cells = [f"`{name}`", metric.title, better, metric.meaning, metric.source]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


#: What makes a reference, by its mark in a page: `<!-- reference of methods -->`.
REFERENCES: dict[str, Callable[[], str]] = {
    "methods": sections,
    "params.yaml": params,
    "formats": lambda: registered(FORMATS),
    "adapters": lambda: registered(adapters),
    "metrics": metrics,
    "trainers": trainers,
}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Puts each reference in place of its mark, and weighs pages of the API."""
    if page.file.src_uri.startswith("api/"):
        page.meta.setdefault("search", {})["boost"] = API_WEIGHT
    for name, make in REFERENCES.items():
        mark = f"<!-- reference of {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Makes the links of the page 404 relative to it, unless the site's address is known."""
    if template_name != "404.html" or config["site_url"]:
        return output_content
    for attribute in ("href", "src"):
        output_content = output_content.replace(f'{attribute}="/', f'{attribute}="./')
    return output_content.replace('"base": "/"', '"base": "."')
