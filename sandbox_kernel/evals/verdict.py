"""Runs the tests of one candidate in a sandbox and returns the verdict, in the words of HumanEval.

The candidate and its tests run in one jail, in two processes that share values and nothing else: see
``guest/scripts/judge.py``. Each jail begins with the files of the sandbox as they are, and none keeps any. As in
HumanEval output is lost, nothing can be read from standard input, an alarm rings after the time, and a candidate that
ends its process counts as timed out. What HumanEval forbids by replacing functions of ``os`` is not forbidden here,
because the sandbox holds it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import json
import os
import secrets
from dataclasses import dataclass

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import check_timeout
from sandbox_kernel.model import Status
from sandbox_kernel.policy.sandbox_policy import AccessMode

#: The memory limit of one program in MB.
MEMORY_MB = 4096
#: How long a program may go on after its alarm, for one that catches it; HumanEval waits as long.
GRACE_S = 1.0
#: The longest verdict that is kept.
_MOST_TEXT = 10_000


@dataclass(frozen=True)
class EvalVerdict:
    """What became of one candidate: ``passed``, ``timed out``, or ``failed:`` and the message of its exception."""

    result: str

    @property
    def passed(self) -> bool:
        """Whether the tests ran to their end without an exception."""
        return self.result == "passed"


def judge_program(
    candidate: str,
    test: str,
    timeout: float,
    *,
    prompt: str = "",
    entry_point: str = "",
    box: Sandbox | None = None,
    memory_mb: int = MEMORY_MB,
) -> EvalVerdict:
    """Run the tests of a candidate and return the verdict.

    Args:
        candidate: The program that is judged, with its prompt.
        test: Its tests, in Python. They call functions of the candidate by their names.
        timeout: Seconds that both may run.
        prompt: The part of the candidate that was given to it. Tests have its names as they are there, whatever the
            candidate made of them, if it is a program by itself.
        entry_point: The function that the prompt asks for. It is the candidate's, whatever name it has.
        box: The sandbox whose policy, interpreter and files hold; None for one of our own with the policy ``standard``.
        memory_mb: Memory limit in MB. A program that reaches it has failed.

    Raises:
        InvalidRequest: An argument has a wrong type or value, or candidates in this sandbox could change files that
            the next one sees, or cannot have a process of their own.

    """
    seconds = check_timeout(timeout)
    word = secrets.token_hex(16)
    first = json.dumps(candidate)
    given = {"word": word, "prompt": prompt, "entry": entry_point, "test": test, "timeout": seconds}
    runner = _shared_box("auto") if box is None else _checked(box)
    # Unlike ``run``, ``map`` keeps no files.
    (result,) = runner.map(
        _judge(), [f"{len(first):016}{first}{json.dumps(given)}"], timeout=seconds + GRACE_S, memory_mb=memory_mb
    )
    with contextlib.suppress(ValueError):  # the judge was ended while it wrote
        for line in reversed(result.stdout.splitlines()):
            if line.startswith(word):
                return EvalVerdict(str(json.loads(line[len(word) :]))[:_MOST_TEXT])
    if result.status is Status.MEMORY_EXCEEDED:
        return EvalVerdict(f"failed: memory limit of {memory_mb} MB exceeded")
    return EvalVerdict("timed out")


def _checked(box: Sandbox) -> Sandbox:
    """Return a sandbox of the caller in which no candidate can leave something for the next. Raises for another."""
    policy = box.policy
    if (
        box.here is not None
        or box.describe_functions()
        or any(each.writable for each in policy.mounts)
        or any(each.mode is AccessMode.READ_WRITE for each in policy.allowed_paths)
    ):
        raise InvalidRequest(
            "candidates in this sandbox could change what the next candidate sees; give one without here=, without "
            "functions= and without writable folders"
        )
    if not policy.process_spawn:
        raise InvalidRequest("a candidate runs in a process of its own; allow_process_spawn() in the sandbox's policy")
    return box


@functools.cache
def _judge() -> str:
    return (importlib.resources.files("sandbox_kernel") / "guest" / "scripts" / "judge.py").read_text()


def box_for(box: Sandbox | None, backend: str | None) -> Sandbox | None:
    """Return the sandbox of a check: the given one, or a shared one on a backend; None for the default of a verdict."""
    if backend is not None and box is not None:
        raise InvalidRequest("give a sandbox or a backend, not both; a sandbox has its own: Sandbox(backend='dask')")
    return box if backend is None else _shared_box(backend)


@functools.lru_cache(maxsize=4)
def _shared_box(backend: str) -> Sandbox:
    return Sandbox(backend=backend)


os.register_at_fork(after_in_child=_shared_box.cache_clear)
