import ctypes
import os
import subprocess
import sys

import pytest

from farther import processes
from farther.processes import count_cores, freed_memory_kept, keep_to_share


@pytest.fixture(autouse=True)
def eight_cores_and_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr("farther.processes.LIMIT", tmp_path / "cpu.max")


def test_only_the_cores_of_the_process_count_not_those_of_the_machine(monkeypatch):
    assert count_cores() == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5})
    assert count_cores() == 2


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("200000 100000", 2), ("250000 100000", 3), ("1000 100000", 1), ("max 100000", 8)],
)
def test_a_container_has_the_cores_that_its_processor_time_is_worth(tmp_path, limit, cores):
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert count_cores() == cores


def test_a_container_that_may_take_the_time_of_more_cores_than_it_has_does_not_get_more(tmp_path):
    (tmp_path / "cpu.max").write_text("1600000 100000\n")
    assert count_cores() == 8


def test_where_affinity_is_unknown_all_cores_of_the_machine_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert count_cores() == 6


@pytest.mark.parametrize(
    ("cores", "parts", "shares"),
    [
        ({0, 1, 2, 3}, 2, [[0, 1], [2, 3]]),
        ({1, 4, 6, 8, 9}, 2, [[1, 4], [6, 8, 9]]),
        ({3}, 2, [[3], [3]]),
        ({0, 1}, 3, [[0], [0], [1]]),
    ],
)
def test_programs_beside_one_another_have_cores_of_their_own(monkeypatch, cores, parts, shares):
    kept = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, share: kept.append(share), raising=False
    )
    for number in range(parts):
        keep_to_share(number, parts)
    assert kept == shares


#: Prints the page faults of ten large arrays that are made and freed one after the other, each a
#: layer's output, in the block and after it.
FAULTS = """
import resource, numpy as np
from farther.processes import freed_memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(50 * 2**20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with freed_memory_kept():
    first = faults()
    print(first, faults())
print(faults())
"""


@pytest.mark.skipif(
    getattr(ctypes.CDLL(None), "mallopt", None) is None, reason="the C library is not glibc"
)
def test_memory_that_is_freed_in_the_block_is_used_again_without_page_faults():
    printed = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    ).stdout
    first, second, after = (int(number) for number in printed.split())
    assert first > 20 * second
    assert after > 20 * second


def test_another_c_library_keeps_memory_as_it_likes(monkeypatch):
    monkeypatch.setattr(processes, "_c_library", lambda: None)
    with freed_memory_kept():
        processes.release_memory()


CYCLE = """
class Printed:
    def __del__(self):
        print("collected")

cycle = [Printed()]
cycle.append(cycle)
print("last", end=" ")
"""


@pytest.mark.parametrize(
    ("before", "printed"),
    [
        ("", "last collected"),
        (
            "from farther.processes import end_without_collection\nend_without_collection()\n",
            "last",
        ),
    ],
)
def test_a_process_may_end_without_collecting_cycles(before, printed):
    command = [sys.executable, "-c", before + CYCLE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed
