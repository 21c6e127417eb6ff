"""Reference of all methods in Markdown, as the docs have it.

It is made from their docstrings and fields.
"""

from __future__ import annotations

import inspect
import re

from farther.methods import logits
from farther.methods.base import METHODS, Method
from farther.naming.registry import different_names, other_names
from farther.text.documentation import describe

#: Descriptions of the inputs that methods declare in `needs`.
NEEDS = {
    "features": "the input h of the last linear layer",
    "gram": (
        "rows of the Gram matrices of inner layers, which the detector's parameter `grams` stores"
    ),
    "labels": "the predicted class",
    "last_layer": "weight and bias of the last linear layer",
    "latent": "latent activations, ROI-aligned and averaged per channel",
    "logits": "the logits z",
    "score": "the detector's confidence, which every detector gives",
    "uncertainty": "the detector's own uncertainty",
    "box_variance": "the variance of the box, which the detector predicts or several passes give",
    "predictive_entropy": "the entropy of the mean probabilities of several passes",
    "mutual_information": "the mutual information of class and pass, of several passes",
}


def table() -> str:
    """All methods as a table in Markdown: title, name, year, paper, authors' code, inputs."""
    lines = [
        "| method | name | year | reference | authors' code | needs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in METHODS.names():
        lines.append(_row(METHODS.get(name)))
    return "\n".join(lines) + "\n"


def sections() -> str:
    """The inputs that methods need, the rules for logits and one section per method."""
    needs = [f"- `{need}`: {text}" for need, text in NEEDS.items()]
    rules = (inspect.getdoc(logits) or "").partition("\n\n")[2]
    parts = ["Inputs that a method may need:\n\n" + "\n".join(needs)]
    parts += ["### Background and sigmoid heads", rules]
    for name in METHODS.names():
        parts.append(_section(METHODS.get(name)))
    return "\n\n".join(parts) + "\n"


def _row(cls: type[Method]) -> str:
    year = "–"
    reference = "–"
    code = "–"
    if cls.publication is not None:
        year = str(cls.publication.year)
        reference = _paper(cls.publication.link)
        if cls.publication.code:
            code = f"[code]({cls.publication.code})"
    needs = ", ".join(f"`{need}`" for need in sorted(cls.needs))
    name = f"[`{cls.name}`](#{cls.name})"
    return f"| {cls.title} | {name} | {year} | {reference} | {code} | {needs} |"


def _paper(link: str) -> str:
    if "arxiv.org" in link:
        return f"[arXiv:{link.rpartition('/')[2]}]({link})"
    return f"[paper]({link})"


def _section(cls: type[Method]) -> str:
    text = describe(cls)
    parts = [
        f"### {cls.name}",
        _other_names(cls),
        text.summary,
        text.text,
        "> " + " ".join(text.sections["Formula"].split()),
    ]
    rows = [f"| `{p.name}` | `{p.default}` | {p.description} |" for p in text.parameters]
    if rows:
        parts.append("\n".join(["| parameter | default | |", "| --- | --- | --- |", *rows]))
    if "Attributes" in text.sections:
        parts.append(
            "Fitted attributes:\n\n"
            + re.sub(
                r"^(\w+(?:, \w+)*): ", r"- `\1`: ", text.sections["Attributes"], flags=re.MULTILINE
            )
        )
    parts.append(_linked(text.sections["References"]))
    if "Example" in text.sections:
        parts.append(f"```python\n{text.sections['Example']}\n```")
    return "\n\n".join(filter(None, parts))


def _other_names(cls: type[Method]) -> str:
    """A line with the method's other names, and with what it is a part of; "" without any."""
    sentences = []
    names = different_names(cls.name, other_names(cls))
    if names:
        sentences.append(f"Also called: {', '.join(names)}.")
    published_by_entry: dict[tuple[str, str], list[str]] = {}
    for published, texts in cls.published_entries.items():
        published_by_entry.setdefault(texts, []).append(published)
    for (entry, of_pass), published_names in published_by_entry.items():
        listed = " or ".join(published_names)
        sentences.append(f"{listed} is `{entry}` with the pass `{of_pass}`.")
    return " ".join(sentences)


def _linked(text: str) -> str:
    text = re.sub(r"https?://\S+", r"<\g<0>>", text)
    return re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"[\g<0>](https://arxiv.org/abs/\1)", text)
