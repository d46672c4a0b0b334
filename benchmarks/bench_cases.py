"""The measured cases: each function runs one group of cases on all kernels, in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from benchmarks.bench_samples import Samples
from benchmarks.kernel_client import NoAnswer, RunningKernel
from benchmarks.kernel_peers import Kernel
from benchmarks.kernel_programs import PROGRAMS, STARTED

_WARM_UP = 3
#: Pause before each small cell, so that work of one kernel between cells does not slow the next kernel down.
_PAUSE_S = 0.05
#: How many cells are sent at once, as by "Run All".
MANY = 20
_OUTPUT_CHARACTERS = 10_000_000
_OUTPUT_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Contestant:
    """A kernel with its programs. Ours takes part twice: with a session, and with fresh cells."""

    title: str
    kernel: Kernel
    nothing: str
    print_one: str
    wait: str
    ten_megabytes: str


def contestants(kernels: Sequence[Kernel]) -> list[Contestant]:
    """Return all kernels that are compared, in the order of the table."""
    found = []
    for kernel in kernels:
        if kernel.label == "sandbox":
            found.append(_contestant(kernel, "sandbox", "", "%%sandbox --output 16M\n"))
            found.append(
                _contestant(kernel, "sandbox `--fresh`", "%%sandbox --fresh\n", "%%sandbox --fresh --output 16M\n")
            )
        else:
            found.append(_contestant(kernel, kernel.label, "", ""))
    return found


def _contestant(kernel: Kernel, title: str, magic: str, output_magic: str) -> Contestant:
    programs = PROGRAMS[kernel.language]
    print_one = {"python": "print(1)", "typescript": "console.log(1)", "bash": "echo 1"}[kernel.language]
    return Contestant(
        title, kernel, magic + programs.nothing, magic + print_one, magic + programs.wait,
        output_magic + programs.ten_megabytes,
    )  # fmt: skip


def run_starts(everyone: Sequence[Contestant], samples: Samples, *, rounds: int) -> None:
    """Measure the time from the start to the reply to a first cell, and then the memory of the kernel's processes."""
    for who in _in_turns(everyone, rounds):
        began = time.perf_counter()
        try:
            with closing(RunningKernel(who.kernel, settle=False)) as running:
                status = running.reply(running.execute(who.print_one), patience=60)["status"]
                seconds = time.perf_counter() - began
                if status != "ok":
                    samples.fail("start", who.title, f"first cell: {status}")
                    continue
                samples.add("start", who.title, seconds)
                samples.add("memory", who.title, running.pss_bytes())
        except NoAnswer as error:
            samples.fail("start", who.title, str(error))


def run_cells(everyone: Sequence[Contestant], samples: Samples, *, rounds: int, pause_s: float = _PAUSE_S) -> None:
    """Measure small cells while all kernels run; each round starts with another kernel."""
    with _all_running(everyone) as kernels:
        for turn, who in enumerate(_in_turns(everyone, rounds + _WARM_UP)):
            warm = turn >= _WARM_UP * len(everyone)
            for case, code, expected in (
                ("empty", "", ""),
                ("nothing", who.nothing, ""),
                ("print", who.print_one, "1"),
            ):
                time.sleep(pause_s)
                try:
                    run = kernels[who.title].run(code, expected=expected)
                except NoAnswer as error:
                    samples.fail(case, who.title, str(error))
                    continue
                if run.reply["status"] != "ok" or run.text().strip() != expected:
                    samples.fail(case, who.title, f"wrong result, status {run.reply['status']}")
                elif warm:
                    samples.add(case, who.title, run.seconds)


def run_hurried_cells(everyone: Sequence[Contestant], samples: Samples, *, rounds: int) -> None:
    """Measure small cells without pauses: work of a kernel between cells counts for its next cell, and for others."""
    hurried = Samples(samples.baseline)
    run_cells(everyone, hurried, rounds=rounds, pause_s=0.0)
    for who in everyone:
        for value in hurried.values["print", who.title]:
            samples.add("hurried", who.title, value)
        for reason in hurried.failures["print", who.title].elements():
            samples.fail("hurried", who.title, reason)


def run_many(everyone: Sequence[Contestant], samples: Samples, *, rounds: int) -> None:
    """Measure many cells sent at once, from the first request to the last reply, without pauses."""
    with _all_running(everyone) as kernels:
        for who in _in_turns(everyone, rounds):
            running = kernels[who.title]
            try:
                running.run(who.print_one, expected="1")
                time.sleep(_PAUSE_S)
                began = time.perf_counter()
                requests = [running.execute(who.print_one) for _ in range(MANY)]
                wrong = [request for request in requests if running.reply(request)["status"] != "ok"]
                seconds = time.perf_counter() - began
                for request in requests:
                    running.until_idle(request)
            except NoAnswer as error:
                samples.fail("many", who.title, str(error))
                continue
            if wrong:
                samples.fail("many", who.title, f"{len(wrong)} of {MANY} cells failed")
            else:
                samples.add("many", who.title, seconds / MANY)


def run_interrupts(everyone: Sequence[Contestant], samples: Samples, *, rounds: int) -> None:
    """Measure the time from an interrupt to the end of the cell. A kernel that dies of it is not measured again."""
    with _all_running(everyone) as kernels:
        for who in _in_turns(everyone, rounds):
            running = kernels[who.title]
            if not running.alive:
                continue
            try:
                request = running.execute(who.wait)
                running.text_until(request, STARTED)
                began = time.perf_counter()
                running.interrupt()
                running.until_idle(request, patience=10)
                running.reply(request, patience=10)
                samples.add("interrupt", who.title, time.perf_counter() - began)
            except NoAnswer as error:
                samples.fail("interrupt", who.title, "the kernel dies" if error.died else str(error))


def run_output(everyone: Sequence[Contestant], samples: Samples, *, rounds: int) -> None:
    """Measure 100 000 lines of 100 characters, and count how many arrive."""
    with _all_running(everyone) as kernels:
        for who in _in_turns(everyone, rounds):
            try:
                run = kernels[who.title].run(who.ten_megabytes, patience=_OUTPUT_PATIENCE_S)
            except NoAnswer as error:
                samples.fail("output", who.title, str(error))
                continue
            # Some kernels send terminal line ends; they are not part of the comparison.
            came = len(run.text().replace("\r\n", "\n"))
            came += len(kernels[who.title].output_of(run.request, _OUTPUT_CHARACTERS - came, patience=1))
            samples.add("output", who.title, run.seconds)
            lost = _OUTPUT_CHARACTERS - came
            told = "nothing lost" if lost == 0 else f"{lost / _OUTPUT_CHARACTERS:.1%} lost" if lost > 0 else "more came"
            samples.remark("output", who.title, told)


def _in_turns(everyone: Sequence[Contestant], rounds: int) -> Iterator[Contestant]:
    for first in range(rounds):
        start = first % len(everyone)
        yield from (*everyone[start:], *everyone[:start])


@contextmanager
def _all_running(everyone: Sequence[Contestant]) -> Iterator[dict[str, RunningKernel]]:
    with ExitStack() as stack:
        yield {who.title: stack.enter_context(closing(RunningKernel(who.kernel))) for who in everyone}
