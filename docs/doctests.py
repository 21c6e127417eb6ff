"""Extension of the API reference: doctests of docstrings are shown as code, where Markdown sees quotations."""

import re
import textwrap
from typing import Any

from griffe import Extension, Object

#: Lines from a prompt up to an empty line, and further ones of this kind.
DOCTEST = re.compile(r"(?m)^>>> .*(?:\n.+)*(?:\n\n>>> .*(?:\n.+)*)*")


class Doctests(Extension):
    """Puts each doctest under the heading `Examples:`."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrites the docstring of a module, class, function or attribute."""
        if obj.docstring and "\nExample:" not in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(
                lambda found: "Examples:\n" + textwrap.indent(found[0], "    "), obj.docstring.value
            )
