"""The counters of a session's cells stay open: a cell opens no file of the kernel that the cell before it has read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandbox_kernel.jail.cgroups.cgroup import find_hierarchies

#: Prints which counters the host opens for the third of three cells, and how many descriptors it holds when all is over.
CELLS = """
import os, sys
from sandbox_kernel import Sandbox
from sandbox_kernel.jail.cgroups.kept_files import _owners

opened = None

def listen(event, args):
    if event == "open" and opened is not None and str(args[0]).startswith(("/sys/fs/cgroup/", "/proc/")):
        opened.append(str(args[0]))

sys.addaudithook(listen)
with Sandbox() as box, box.session() as session:
    assert session.run("x = 1").ok
    assert session.run("x += 1").ok
    opened = []
    assert session.run("x += 1").ok
    # Limits are written when they change, which is rare.
    print([path for path in opened if not path.endswith(("limit_in_bytes", "memory.max"))])
    opened = None
print(sum(len(owner._open) for owner in _owners))
"""


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group may be made here")
@pytest.mark.slow
def test_a_cell_opens_no_counter_anew_and_a_closed_session_leaves_none_open() -> None:
    done = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, timeout=120)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "0"], "")
