"""Hook of the docs: references of methods and of params.yaml are made when the site is built."""

from typing import Any

from farther.methods.reference import reference as reference_of_methods
from farther.pipeline.params_reference import reference as reference_of_params
from farther.pipeline.sections import tables_of
from farther_demo import DemoWorld

METHODS = "<!-- reference of methods -->"
PARAMS = "<!-- reference of params.yaml -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts each reference in place of its mark."""
    if METHODS in markdown:
        return markdown.replace(METHODS, reference_of_methods())
    if PARAMS in markdown:
        return markdown.replace(PARAMS, reference_of_params({"demo": tables_of("demo", DemoWorld)}))
    return markdown
