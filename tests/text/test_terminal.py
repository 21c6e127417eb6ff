"""What a command shows while it works."""

import io
import sys

import pytest

from farther.text.terminal import say, working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_being_done_and_nothing_is_left_of_it(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with working("reading pets"), working("reading one file of pets"):
        assert terminal.getvalue() == "\r\033[Kreading pets … "
    assert terminal.getvalue().endswith("\r\033[K")
    assert "one file" not in terminal.getvalue()


def test_a_message_is_printed_to_an_empty_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with working("reading pets"):
        say("a message", file=terminal)
    assert "\r\033[Ka message\n" in terminal.getvalue()


def test_a_file_gets_nothing(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with pytest.raises(KeyboardInterrupt), working("reading pets"):
        raise KeyboardInterrupt
    assert file.getvalue() == ""
