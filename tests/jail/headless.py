"""Processes whose main thread has ended while other threads run on: the kernel shows them as zombies without memory."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

#: ``end_main_thread()`` ends the calling thread and leaves the process to the others.
END_MAIN_THREAD = """
import ctypes, os
def end_main_thread():
    ctypes.CDLL(None).syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[os.uname().machine]), ctypes.c_long(0))
"""

_PROGRAM = (
    END_MAIN_THREAD
    + """
import signal, threading, time
go = threading.Event()
def work():
    go.wait()
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z": time.sleep(0.001)
{work}
    print("ready", flush=True)
    signal.pause()
threading.Thread(target=work).start()
go.set()
end_main_thread()
"""
)


@contextlib.contextmanager
def headless(work: str = "pass") -> Iterator[int]:
    """A process that has done ``work`` in a thread after its main thread had ended; its pid."""
    code = _PROGRAM.replace("{work}", "\n".join(f"    {line}" for line in work.splitlines()))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        os.kill(process.pid, 9)
        process.wait()
        process.stdout.close()
