"""A fork that sleeps at once: what it does when it wakes, and when it is not the right way. Each in a program of its own."""

import subprocess
import sys

#: Forks a child that sleeps until its parent wakes it, and prints what child and parent say.
_FORK = """
import os, random, signal, threading
from sandbox_kernel.guest.session import sleeping_fork
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
said = []
os.register_at_fork(after_in_child=lambda: said.append("set right"))
assert sleeping_fork.alone()
parent = os.getpid()
pid = sleeping_fork.fork()
if pid == 0:
    number = sleeping_fork.sleep(parent, 0, signal.SIGCHLD)
    before = list(said)
    sleeping_fork.wake_up()
    thread = threading.Thread(target=lambda: said.append("thread"))
    thread.start(); thread.join()
    print(number == signal.SIGUSR2, before, said, os.getpid() == os.getpgid(0), flush=True)
    os._exit(0)
assert said == []
"""


def told(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_child_sets_itself_right_when_it_wakes_and_not_before() -> None:
    wake = "os.kill(pid, signal.SIGUSR2); os.waitpid(pid, 0)"
    assert told(_FORK + wake) == "True [] ['set right', 'thread'] True\n"


def test_the_child_tells_something_before_it_sets_itself_right_discards_what_was_not_for_it_or_says_it_cannot() -> None:
    code = """
import os, signal, socket
from sandbox_kernel.guest.session import sleeping_fork
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
ours, theirs = socket.socketpair()
said = []
os.register_at_fork(after_in_child=lambda: said.append("set right"))
parent = os.getpid()
pid = sleeping_fork.fork()
if pid == 0:
    sleeping_fork.sleep(parent, 0, signal.SIGCHLD)
    told = sleeping_fork.tell(theirs.fileno(), b"awake")
    before = list(said)
    sleeping_fork.wake_up()
    print(told, before, said, theirs.recv(100), flush=True)
    os._exit(0)
ours.send(b"x" * 10_000)
os.kill(pid, signal.SIGUSR2)
assert ours.recv(100) == b"awake"
ours.send(b"next")
os.waitpid(pid, 0)
ours.close()
print(sleeping_fork.tell(theirs.fileno(), b"awake"))
"""
    assert told(code) == "True [] ['set right'] b'next'\nFalse\n"


def test_signals_of_others_do_not_wake_the_child() -> None:
    other = (
        "import subprocess\n"
        "from sandbox_kernel.guest.session.held import await_no_signal\n"
        "subprocess.run(['kill', '-USR2', str(pid)], check=True)\n"
        # Until it was taken, the kernel would make one signal of it and ours.
        "assert await_no_signal(pid, signal.SIGUSR2, 60)\n"
        "try: print(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG), flush=True)\n"
        "finally: os.kill(pid, signal.SIGUSR2); os.waitpid(pid, 0)"
    )
    assert told(_FORK + other).startswith("None\n")


def test_a_process_with_another_python_thread_is_not_alone() -> None:
    busy = """
import threading
from sandbox_kernel.guest.session import sleeping_fork
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
print(sleeping_fork.alone()); thread.start(); print(sleeping_fork.alone()); stop.set(); thread.join()
print(sleeping_fork.alone())
"""
    assert told(busy) == "True\nFalse\nTrue\n"
