import ast

import pytest

from farther.syntax import _TreeText, registrations


def test_a_syntax_tree_is_written_alike_in_every_python():
    tree = ast.parse("def f(a=None):\n    return [f'{a}é']\n")
    assert _TreeText().of(tree) == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='a')], "
        "defaults=[Constant()]), body=[Return(value=List(elts=[JoinedStr(values=["
        "FormattedValue(value=Name(id='a', ctx=Load()), conversion=-1), "
        "Constant(value='\\xe9')])], ctx=Load()))])])"
    )


def test_a_registration_has_a_name_a_decorator_and_the_first_paragraph_of_its_docstring(tmp_path):
    file = tmp_path / "scores.py"
    file.write_text(
        "@farther.register('mine')\nclass Mine:\n"
        '    """One line\n    and another.\n\n    More.\n    """\n'
        "@other.register_module(name='x')\nclass Other: ...\n"
        "@KINDS.register('pasted')\n@final\nclass Pasted: ...\n"
        "# @register('commented')\n"
    )
    found = [(entry.name, entry.decorator, entry.summary) for entry in registrations(file)]
    assert found == [
        ("mine", "farther.register", "One line and another."),
        ("pasted", "KINDS.register", ""),
    ]


def test_a_name_that_is_not_written_as_a_text_is_refused(tmp_path):
    file = tmp_path / "scores.py"
    file.write_text("NAME = 'mine'\n@register(NAME)\nclass Mine: ...\n")
    with pytest.raises(ValueError, match=r'line 2: write the name as a text: @register\("name"\)'):
        registrations(file)
