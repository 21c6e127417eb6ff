"""Output of running processes: lines, progress bars, and its end."""

import os

import pytest

from farther.command.process_output import Event, read_output


@pytest.fixture
def pipe():
    """Reading and writing end of a pipe; tests close the writing end."""
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)


def events_of(pipe, *chunks: bytes) -> list[Event]:
    """The events of a file that has these bytes and ends."""
    read_end, write_end = pipe
    for chunk in chunks:
        os.write(write_end, chunk)
    os.close(write_end)
    return list(read_output({read_end: "out"}))


def test_lines_have_the_name_of_their_file_and_no_escape_codes(pipe):
    events = events_of(pipe, b"one\n\x1b[31mtwo\x1b[0m \n")
    assert events == [Event("line", "one", "out"), Event("line", "two", "out")]


def test_a_last_line_without_a_line_break_is_a_line_too(pipe):
    events = events_of(pipe, b"one\nlast")
    assert [event.text for event in events if event.kind == "line"] == ["one", "last"]


@pytest.mark.parametrize("bar", [b"\r 10%|#   |\r 50%|##  |", b"\r 10%|#   |\r"])
def test_a_bar_is_no_line_when_it_ends_but_what_overwrites_it_is(pipe, bar):
    lines = [event.text for event in events_of(pipe, bar + b"\ndone\n") if event.kind == "line"]
    assert lines == ["done"]
    read_end, write_end = os.pipe()
    os.write(write_end, bar + b"\rresult\n")
    os.close(write_end)
    assert list(read_output({read_end: "out"})) == [Event("line", "result", "out")]
    os.close(read_end)


def test_an_unfinished_line_is_a_bar(pipe):
    events = events_of(pipe, b"\r 10%|# |\r 50%|## |")
    assert events[0] == Event("bar", " 50%|## |", "out")
    assert all(event.kind == "bar" for event in events)


def test_reading_ends_with_the_stage_though_its_file_stays_open(pipe):
    read_end, write_end = pipe
    ended, ends = os.pipe()
    os.write(write_end, b"before the end\n")
    os.write(ends, b"0")
    assert list(read_output({read_end: "out"}, ended)) == [Event("line", "before the end", "out")]
    for descriptor in (write_end, ended, ends):
        os.close(descriptor)
