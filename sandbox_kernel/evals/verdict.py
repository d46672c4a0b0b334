"""Runs one test program in a sandbox and returns its verdict, in the words of HumanEval.

The program is executed as HumanEval does it: with empty globals, its output swallowed, standard input closed, an alarm
after its time. What HumanEval forbids by replacing functions of ``os`` is not forbidden here, because the sandbox holds
it. The program runs in a child of the judge, which reports to it over a pipe; the judge prints the verdict with a
random word that the child's process does not have, so nothing that is printed is taken for a verdict. A program that
ends its process before the verdict has none, and counts as timed out, as in HumanEval. It shares its process with its
tests, here as there: one that sets out to deceive them can (an object that equals everything is enough).
"""

from __future__ import annotations

import functools
import json
import os
import secrets
from dataclasses import dataclass

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.limits import check_timeout
from sandbox_kernel.model import Status

#: The memory limit of one program in MB.
MEMORY_MB = 4096
#: How long a program may go on after its alarm, for one that catches it; HumanEval waits as long.
GRACE_S = 1.0
#: The longest verdict that is kept.
_MOST_TEXT = 10_000

#: As HumanEval sets it: many programs run at once.
_ENV = {"OMP_NUM_THREADS": "1"}
_JUDGE = """
import contextlib, ctypes, io, json, os, signal, sys
given = json.loads(sys.stdin.read())
class TimeoutException(Exception): pass
class Closed(io.StringIO):
    def read(self, *a, **k): raise OSError
    def readline(self, *a, **k): raise OSError
    def readlines(self, *a, **k): raise OSError
    def readable(self, *a, **k): return False
def ring(number, frame): raise TimeoutException("Timed out!")
def judge(program, seconds):
    stream = Closed()
    sys.stdin = stream
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                exec(program, {})
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        return "passed"
    except TimeoutException:
        return "timed out"
    except BaseException as error:
        return f"failed: {error}"
# Four bytes a character at most, which is less than a pipe holds: the judge reads when the child has ended.
def report(verdict, write=os.write, leave=os._exit):
    write(told, verdict[:MOST].encode("utf-8", "replace"))
    leave(0)
heard, told = os.pipe()
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: the child cannot look into the judge
child = os.fork()
if child == 0:
    os.close(heard)
    del given["word"]
    report(judge(given.pop("program"), given.pop("timeout")))
os.waitpid(child, 0)
os.set_blocking(heard, False)
try:
    verdict = os.read(heard, 5 * MOST).decode("utf-8", "replace")
except BlockingIOError:  # a process that the program left behind has the pipe
    verdict = ""
if verdict:
    os.write(1, ("\\n" + given["word"] + json.dumps(verdict) + "\\n").encode())
os._exit(0)
""".replace("MOST", str(_MOST_TEXT))


@dataclass(frozen=True)
class EvalVerdict:
    """What became of one program: ``passed``, ``timed out``, or ``failed:`` and the message of its exception."""

    result: str

    @property
    def passed(self) -> bool:
        """Whether the program ran to its end without an exception."""
        return self.result == "passed"


def judge_program(
    program: str, timeout: float, *, box: Sandbox | None = None, memory_mb: int = MEMORY_MB
) -> EvalVerdict:
    """Run a test program and return its verdict.

    Args:
        program: The solution and its tests, as one program in Python.
        timeout: Seconds that it may run.
        box: The sandbox whose policy and interpreter hold; None for one of our own with the policy ``standard``.
        memory_mb: Memory limit in MB. A program that reaches it has failed.

    Raises:
        InvalidRequest: An argument has a wrong type or value.

    """
    seconds = check_timeout(timeout)
    word = secrets.token_hex(16)
    given = json.dumps({"word": word, "program": program, "timeout": seconds})
    runner = box if box is not None else _shared_box()
    result = runner.run(_JUDGE, timeout=seconds + GRACE_S, memory_mb=memory_mb, stdin=given, env=_ENV)
    verdict = _read(result.stdout, word)
    if verdict is not None:
        return EvalVerdict(verdict)
    if result.status is Status.MEMORY_EXCEEDED:
        return EvalVerdict(f"failed: memory limit of {memory_mb} MB exceeded")
    return EvalVerdict("timed out")


def _read(stdout: str, word: str) -> str | None:
    """Return the verdict in the output of the judge; None when there is none."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(word):
            try:
                verdict = json.loads(line[len(word) :])
            except ValueError:
                return None
            return verdict[:_MOST_TEXT] if isinstance(verdict, str) else None
    return None


@functools.lru_cache(maxsize=1)
def _shared_box() -> Sandbox:
    return Sandbox()


os.register_at_fork(after_in_child=_shared_box.cache_clear)
