"""Names, labels, paths and notes that would be obeyed where a writer does not escape them."""

#: What pages, figures and Markdown would run or load.
RUN = "window.ran = 1; alert(1)"

TEXTS = {
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
