"""The process that tests fork their commands and workers from."""

import subprocess
import sys

import pytest
from tests.support import forked

#: A package that fails as soon as a command waits.
BROKEN = """
import gc, select, socket
servers = [one for one in gc.get_objects() if isinstance(one, socket.socket)]
select.select(servers, [], [])
raise ImportError("broken")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux only")
def test_a_command_whose_server_cannot_import_a_package_says_why(tmp_path, monkeypatch):
    (tmp_path / "PIL.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    commands = forked.start(tmp_path / "commands")
    for _ in range(2):  # one that waits, and one that comes later
        done = subprocess.run([commands / "python", "-m", "this"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "ImportError: broken" in done.stderr
