"""The import of Ultralytics has no side effects in a process that has not imported it yet."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, socket
import numpy, PIL.Image

def refuse(*args, **kwargs):
    raise SystemExit("asked for the network")

socket.getaddrinfo = socket.create_connection = refuse
before = PIL.Image.open, numpy.get_printoptions(), repr(numpy.array([0.5]))
import farther.detectors.yolo
import ultralytics
after = PIL.Image.open, numpy.get_printoptions(), repr(numpy.array([0.5]))
assert not ultralytics.utils.ONLINE
assert "YOLO_OFFLINE" not in os.environ and "YOLO_CONFIG_DIR" not in os.environ
print(before == after)
"""


@pytest.mark.slow
def test_pictures_are_opened_as_before_nothing_is_asked_of_the_network_nor_written_at_home(
    tmp_path,
):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("YOLO")}
    process = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**kept, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "True\n"
    assert [file for file in tmp_path.rglob("*") if "ltralytics" in file.name] == []


WORKER = """
import multiprocessing
from farther.detectors.networks.ultralytics_import import import_quietly
worker = multiprocessing.get_context("fork").Process(target=import_quietly)
worker.start()
worker.join()
"""


@pytest.mark.slow
def test_a_worker_leaves_no_folder(tmp_path):
    subprocess.run(
        [sys.executable, "-c", WORKER], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True
    )
    assert not list(tmp_path.glob("farther-*"))
