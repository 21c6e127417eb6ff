"""The commands of the tutorial, docs/start.md, have the names and options that it types."""

from __future__ import annotations

import shlex

import pytest
from tests.docs.pages import Page

from farther.command import main

LINES = [
    line
    for text in Page("start.md").blocks("bash")
    for line in text.splitlines()
    if line.startswith("farther ")
]


def test_the_path_goes_from_photographs_to_a_deployed_detector():
    names = [line.split()[1] for line in LINES]
    assert names == ["init", "doctor", "repro", "summary", "open", "choose", "bundle", "predict"]


@pytest.mark.parametrize("line", LINES)
def test_a_command_knows_its_options(line, capsys):
    assert main([*shlex.split(line)[1:], "--help"]) == 0
    assert main([*shlex.split(line)[1:], "--absent"]) == 2
