"""What importing Ultralytics must leave as it was, seen in a process that has not imported it yet."""

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
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
