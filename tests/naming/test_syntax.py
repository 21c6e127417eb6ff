import pytest

from farther.naming.syntax import imported_at_once, imported_modules, literal, registrations


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


def test_imports_within_functions_and_by_text_are_found_and_relative_ones_are_not(tmp_path):
    file = tmp_path / "scores.py"
    file.write_text(
        "import json, tools.deep\nfrom a import b\nfrom . import c\nfrom .d import e\n"
        "def f():\n    import late\n    importlib.import_module('by.text')\n"
        "    importlib.import_module(name)\n    importlib.import_module('.relative')\n"
    )
    at_once = {"json", "tools.deep", "a", "a.b"}
    assert imported_at_once(file) == at_once
    assert imported_modules(file) == at_once | {"late", "by.text"}


def test_a_literal_is_read_without_importing_the_file(tmp_path):
    file = tmp_path / "scores.py"
    file.write_text("1 / 0\nWATCHED: list[str] = ['a']\nOTHER = f()\n")
    assert literal(file, "WATCHED") == ["a"]
    assert literal(file, "ABSENT") is None
    with pytest.raises(ValueError, match="line 3: OTHER is not a literal"):
        literal(file, "OTHER")
