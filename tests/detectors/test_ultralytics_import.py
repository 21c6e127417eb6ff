"""The import of Ultralytics has no side effects in a process that has not imported it yet."""

import os
import subprocess
import sys

CODE = """
import numpy, PIL.Image
before = PIL.Image.open, numpy.get_printoptions(), repr(numpy.array([0.5]))
from farther.detectors.networks.ultralytics_import import import_quietly
import_quietly()
after = PIL.Image.open, numpy.get_printoptions(), repr(numpy.array([0.5]))
print(before == after)
"""


def test_pictures_are_opened_and_arrays_printed_as_before():
    process = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    )
    assert process.stdout == "True\n"


WORKER = """
import multiprocessing
from farther.detectors.networks.ultralytics_import import import_quietly
worker = multiprocessing.get_context("fork").Process(target=import_quietly)
worker.start()
worker.join()
"""


def test_a_worker_leaves_no_folder(tmp_path):
    subprocess.run(
        [sys.executable, "-c", WORKER], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True
    )
    assert not list(tmp_path.glob("farther-*"))
