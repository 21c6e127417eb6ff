"""The blocks of code of a page of the docs."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

#: Files that pages link for download.
EXAMPLES = DOCS / "examples"


class Page:
    """A page.

    Args:
        name: Its file below `docs`.
    """

    def __init__(self, name: str):
        self.text = (DOCS / name).read_text(encoding="utf-8")

    def blocks(self, kind: str, heading: str = "") -> list[str]:
        """The blocks of a language; of the section below a heading, if one is given."""
        text = self.text
        if heading:
            text = re.search(
                rf"^### {re.escape(heading)}.*?\n(.*?)(?=^##)", text, flags=re.MULTILINE | re.DOTALL
            )[1]  # type: ignore[index]
        return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)

    def block(self, kind: str, word: str) -> str:
        """The only block of a language that has a word."""
        (text,) = [text for text in self.blocks(kind) if word in text]
        return text
