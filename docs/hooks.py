"""Hooks of the docs: references made from the code, weights in the search, and the page 404."""

from typing import Any

from farther.methods.reference import sections
from farther.pipeline.described_keys import tables_of_schema
from farther.pipeline.params_reference import reference as reference_of_params
from farther.pipeline.params_schema import Schemas
from farther_demo import DemoWorld

METHODS = "<!-- reference of methods -->"
PARAMS = "<!-- reference of params.yaml -->"

#: Weight of the pages of the Python API in the search; other pages have 1. The search weighs a
#: title 1,000 times as much as a text, and each function of the API is a title.
API_WEIGHT = 0.0001


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Puts each reference in place of its mark, and weighs pages of the API."""
    if page.file.src_uri.startswith("api/"):
        page.meta.setdefault("search", {})["boost"] = API_WEIGHT
    if METHODS in markdown:
        return markdown.replace(METHODS, sections())
    if PARAMS in markdown:
        schemas = Schemas()
        tables = {"demo": tables_of_schema("demo", schemas.of(DemoWorld), schemas)}
        return markdown.replace(PARAMS, reference_of_params(tables))
    return markdown


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Makes the links of the page 404 relative to it, unless the site's address is known."""
    if template_name != "404.html" or config["site_url"]:
        return output_content
    for attribute in ("href", "src"):
        output_content = output_content.replace(f'{attribute}="/', f'{attribute}="./')
    return output_content.replace('"base": "/"', '"base": "."')
