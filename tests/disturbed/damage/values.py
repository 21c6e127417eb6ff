"""Values that damage is made of."""

from __future__ import annotations

import math
import os
import random
from typing import Any

CANARY = "touch FARTHER_CANARY"

TEXTS = (
    "", " ", "\0", "\n", "\t", "a\nb", "../x", "/etc/passwd", "C:\\x", ".", "..", "-", "x" * 300, "a/" * 3000, "x" * 200_000,
    "\ud800", "\udcff", "é", "e\u0301", "\N{RIGHT-TO-LEFT OVERRIDE}x", "\N{PILE OF POO}" * 70, "\x1b[31m", "\x7f", "\ufeff", "\ufffe",
    "=1+1", "{}", "{0}", "{row!r}", "%s%n", "NaN", "nan", "inf", "-Infinity", "1e999", "-0", "0x10", "1_000", "٣", "²",
    "true", "null", "None", "~", "no", "2020-13-45", "1:2:3", "<<", "*a", "&a", "!!int x", "|", ">", "[", "{", "%YAML 9",
    f"; {CANARY}", f"$({CANARY})", f"`{CANARY}`", f"__import__('os').system('{CANARY}')", f"'{CANARY}'", "\\input /etc/passwd",
    "<script>alert(1)</script>", "<!--", "]]>", "&#0;", "nn.Module", "torch.load", "TorchVision", "file:///etc/passwd",
)  # fmt: skip
#: What pages, figures and Markdown would run or load.
RUN = "window.ran = 1; alert(1)"

#: Names, labels, paths and notes that would be obeyed where a writer does not escape them.
OBEYED = {
    "element": f'<b onclick="{RUN}">&amp;</b> \' "',
    "script": f"</script><script>{RUN}</script><!-- ]]> <img src=x onerror='{RUN}'>",
    "element of a picture": (
        f"</text></svg><svg onload='{RUN}'><style>* {{ display: none }}</style>"
    ),
    "link": f"javascript:{RUN}",
    "template": "{{ 7 * 7 }} {% include 'x' %} ${7 * 7} #{7} %s {0} {row!r}",
    "right to left": (
        "photo\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe\N{FIRST STRONG ISOLATE}\N{ZERO WIDTH SPACE}"
    ),
    "escape codes": "\x1b[31mred\x1b]0;title\x07\x08\x7f",
    "long": "long" * 2500,
    "formula": '=HYPERLINK("http://elsewhere.invalid","y")',
    "formula of a sum": "@SUM(A1:A9)",
    "formula with a plus": "+1+cmd|'/c calc'!A1",
    "formula with a minus": "-1+1",
    "formula behind an apostrophe": "'=1+1",
    "lines": "one\ntwo\r\n- three\N{LINE SEPARATOR}four",
    "LaTeX": r"\input{/etc/passwd} $x_1^2$ 50% #1 & ~ { \end{tabular} ` '' \\",
    "BibTeX": '}, title = {x}, "y", @comment{ }}',
    "Markdown": (
        rf"[a](javascript:{RUN}) ![b](http://elsewhere.invalid/x.png) **c** _d_ `e` ~~f~~ "
        r"| g \| h \\| # i"
    ),
    "autolink": "<http://elsewhere.invalid> &lt;i&gt;",
    "YAML": "a: [b, {c: d}] # e !!python/object 'f\" - *g &h",
}
NUMBERS = (
    0, 1, -1, 2, 3, 255, 65_537, 10**6, 10**7, 10**9, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63),
    2**64, 10**400, -(10**30), 0.5, -0.5, 1e-320, 1e30, 1e300, -1e300, 1.7e308, math.nan, math.inf, -math.inf, 1e-9,
)  # fmt: skip
BYTES = (
    *(b"\0", b"\xff", b"\x80", b"\x7f", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\r"),
    *(b'"', b"'", b",", b"{", b"[", b"<", b"\xc3", b"\xfe\xff"),
)
YAML = (
    "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + k)}: &{chr(98 + k)} [{', '.join(['*' + chr(97 + k)] * 9)}]\n" for k in range(9)),
    f"!!python/object/apply:os.system ['{CANARY}']\n", f"x: !!python/object/new:os.system ['{CANARY}']\n", "a: &a [*a]\n", "a: !!binary '%%'\n",
    "? [a, b]\n: 1\n", "a: 2020-13-45\n", "a: !!int x\n", "a: 1\na: 2\n", "<<: [1]\n", "a: 190:20:30:15:59\n", "[" * 5000, "- " * 5000 + "x\n", "--- a\n--- b\n",
    "a: " + "9" * 5000 + "\n", "x: !!timestamp 9999-99-99\n", "\t- a\n", "a: 'b\n", "%TAG ! x:\n--- !a b\n", "a: !!set {a}\n", "a: 2020-01-01\n", "1: 2\n", "null: a\n",
)  # fmt: skip
#: Values and keys of YAML that are of types that JSON does not have.
TYPED = (
    "2020-01-01", "2020-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "!!set {a, b}", "!!binary aGk=", "!!omap [a: 1]", "!!pairs [a: 1, a: 2]", "{2020-01-01: 1}",
    "{1: a, true: b, ~: c}", "{1.5: .nan}", "{? [1, 2] : 3}", "!!str", "!!null x", ".inf", "-.inf", "0x7fffffffffffffffff", "[[], {}, ~]", "!!bool maybe",
)  # fmt: skip
KEYS = (
    *(
        "1",
        "-1.5",
        "true",
        "~",
        ".nan",
        "2020-01-01",
        "!!binary aGk=",
        "? [a, b]",
        "[1]",
        "<<",
        "=",
        "'1'",
    ),
    *("'\\0'", '"\\0"', '"\\ud800"'),
)
XML = (
    '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;"><!ENTITY z "&y;&y;&y;&y;&y;&y;&y;&y;">]>',
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "<a>" * 20_000, "&x;", "<object/>", "<size><width>1e300</width></size>",
    "<bndbox/>", "<![CDATA[x]]>", '<?xml version="1.0" encoding="utf-7"?>', '<?xml version="1.0" encoding="x"?>', "</annotation>", "<name/>", "&#xD800;",
)  # fmt: skip


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self) -> Any:
        return os.system, (CANARY,)


def one_of(chance: random.Random, words: str) -> str:
    """One of several words, those that are listed twice twice as often."""
    return chance.choice(words.split())
