"""The classification table: what the jail saw on the left, what the caller is told on the right. Pure."""

import signal
from dataclasses import replace

import pytest

from sandbox_kernel.backends.outcome import judge_run, run_result
from sandbox_kernel.jail.accounting.meter import Reading
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.gate_messages import Step, StepExit
from sandbox_kernel.jail.run_job import Job, JobOutcome
from sandbox_kernel.jail.streams import Capture
from sandbox_kernel.languages.recipe import ProgramPlan
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

MEMORY = 64 << 20


def step(*, compiles: bool = False) -> Step:
    return Step(kind="exec", argv=["x"], env={}, rlimits={}, cwd="/box", compiles=compiles)


def job(*steps: Step, cpu_seconds: float | None = None) -> Job:
    return Job(
        steps=steps or (step(),),
        timeout_s=5,
        memory_bytes=MEMORY,
        processes=64,
        cpu_seconds=cpu_seconds,
        output_bytes=1000,
    )


def end(code: int, *flags: str, rss: int = 1 << 20, cpu: float = 0.1) -> StepExit:
    return StepExit(code=code, cpu_seconds=cpu, max_rss_bytes=rss, flags=flags)


def captured(data: bytes = b"", cap: int = 1000) -> Capture:
    made = Capture(cap)
    made.feed(data)
    made.finish()
    return made


def outcome(
    *exits: StepExit,
    stopped_by: str | None = None,
    reading: Reading | None = None,
    disk_full: bool = False,
    stdout: bytes = b"",
    stderr: bytes = b"",
) -> JobOutcome:
    return JobOutcome(
        exits=exits,
        stopped_by=Ending(stopped_by) if stopped_by else None,
        stdout=captured(stdout),
        stderr=captured(stderr),
        duration_s=0.5,
        compile_s=None,
        reading=reading or Reading(),
        disk_full=disk_full,
    )


OOM = Reading(memory_exceeded=True)
BOMB = Reading(forks_refused=True)
FLOOD = b"x" * 5000
REFUSED = Reading(refuses_memory=True)
ALMOST_ALL = Reading(refuses_memory=True, peak_bytes=250 << 20)
NO_MEMORY = b"cell.rb: failed to allocate memory (NoMemoryError)"

TABLE = [
    ("a clean end", outcome(end(0)), Status.OK, None),
    ("a program that says no", outcome(end(3)), Status.FAILED, None),
    ("exit 137 is not a signal", outcome(end(137)), Status.FAILED, None),
    ("a crash", outcome(end(-signal.SIGSEGV)), Status.KILLED, None),
    ("a SIGKILL of its own is no memory limit", outcome(end(-signal.SIGKILL)), Status.KILLED, None),
    ("abort() is a program's own failure", outcome(end(-signal.SIGABRT)), Status.FAILED, None),
    ("a file beyond the size limit", outcome(end(-signal.SIGXFSZ)), Status.KILLED, "disk"),
    ("no end at all: the gate died", outcome(), Status.KILLED, None),
    ("the clock ran out", outcome(stopped_by="timeout"), Status.TIMEOUT, "timeout"),
    ("the CPU clock ran out", outcome(stopped_by="cpu"), Status.CPU_LIMIT, "cpu"),
    ("the watchdog ended it", outcome(stopped_by="memory"), Status.MEMORY_EXCEEDED, "memory"),
    ("too many files", outcome(stopped_by="disk"), Status.KILLED, "disk"),
    ("the caller ended it", outcome(stopped_by="cancel"), Status.INTERRUPTED, None),
    ("the kernel counted a memory kill", outcome(end(-signal.SIGKILL), reading=OOM), Status.MEMORY_EXCEEDED, "memory"),
    ("a child was killed for memory, the parent said ok", outcome(end(0), reading=OOM), Status.MEMORY_EXCEEDED, "memory"),
    ("memory wins over the clock", outcome(stopped_by="timeout", reading=OOM), Status.MEMORY_EXCEEDED, "memory"),
    ("MemoryError at the limit", outcome(end(1, "memory")), Status.MEMORY_EXCEEDED, "memory"),
    ("a MemoryError that was caught", outcome(end(0, "memory")), Status.OK, None),
    ("a runtime that was refused memory", outcome(end(1), reading=REFUSED, stderr=NO_MEMORY), Status.MEMORY_EXCEEDED, "memory"),
    ("the same words where the kernel counts", outcome(end(1), stderr=NO_MEMORY), Status.FAILED, None),
    ("the same words and a good end", outcome(end(0), reading=REFUSED, stderr=NO_MEMORY), Status.OK, None),
    ("an answer that nobody looked at", outcome(end(-signal.SIGSEGV), reading=ALMOST_ALL), Status.MEMORY_EXCEEDED, "memory"),
    ("a crash with memory to spare", outcome(end(-signal.SIGSEGV), reading=REFUSED), Status.KILLED, None),
    ("a failure with much memory taken", outcome(end(1), reading=ALMOST_ALL), Status.FAILED, None),
    ("a fork bomb that was refused and lived", outcome(end(0), reading=BOMB), Status.OK, "processes"),
    ("a fork bomb that was refused and died of it", outcome(end(1), reading=BOMB), Status.FAILED, "processes"),
    ("a fork that only the program saw refused", outcome(end(0, "processes")), Status.OK, "processes"),
    ("a full disk, survived", outcome(end(0), disk_full=True), Status.OK, "disk"),
    ("a full disk, not survived", outcome(end(1, "disk")), Status.FAILED, "disk"),
    ("too many open files", outcome(end(1, "open_files")), Status.FAILED, "open_files"),
    ("a flood on stdout", outcome(end(0), stdout=FLOOD), Status.OK, "output"),
    ("a flood on stderr", outcome(end(1), stderr=FLOOD), Status.FAILED, "output"),
    ("a fork bomb that also floods", outcome(end(0), reading=BOMB, stdout=FLOOD), Status.OK, "processes"),
    ("a crash while flooding", outcome(end(-signal.SIGSEGV), stdout=FLOOD), Status.KILLED, "output"),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "status", "limit"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_was_seen_becomes_what_is_told(seen: JobOutcome, status: Status, limit: str | None) -> None:
    assert judge_run(seen, job()) == (status, limit)


def test_every_status_that_a_process_can_have_is_in_the_table() -> None:
    assert {row[2] for row in TABLE} == set(Status) - {Status.COMPILE_FAILED, Status.FUEL_EXHAUSTED}


def test_sigxcpu_is_the_cpu_limit_only_when_there_is_one() -> None:
    seen = outcome(end(-signal.SIGXCPU))
    assert judge_run(seen, job(cpu_seconds=1)) == (Status.CPU_LIMIT, "cpu")
    assert judge_run(seen, job()) == (Status.KILLED, None)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGTRAP])
def test_a_runtime_that_gives_up_near_the_limit_ran_out_of_memory_and_elsewhere_did_not(number: int) -> None:
    near, far = MEMORY * 3 // 4, MEMORY * 3 // 4 - 1
    assert judge_run(outcome(end(-number), reading=Reading(peak_bytes=near)), job())[0] is Status.MEMORY_EXCEEDED
    assert judge_run(outcome(end(-number, rss=near)), job())[0] is Status.MEMORY_EXCEEDED
    assert judge_run(outcome(end(-number), reading=Reading(peak_bytes=far)), job())[0] is not Status.MEMORY_EXCEEDED


def test_a_failed_compiler_is_a_failed_compilation_and_the_program_after_it_is_not() -> None:
    two = job(step(compiles=True), step())
    assert judge_run(outcome(end(1)), two) == (Status.COMPILE_FAILED, None)
    assert judge_run(outcome(end(-signal.SIGSEGV)), two) == (Status.COMPILE_FAILED, None)
    assert judge_run(outcome(end(0), end(1)), two) == (Status.FAILED, None)
    assert judge_run(outcome(end(0), end(0)), two) == (Status.OK, None)


def test_a_compiler_that_ran_out_of_memory_or_time_is_told_as_that() -> None:
    two = job(step(compiles=True), step())
    assert judge_run(outcome(end(1), reading=OOM), two)[0] is Status.MEMORY_EXCEEDED
    assert judge_run(outcome(stopped_by="timeout"), two)[0] is Status.TIMEOUT


REQUEST = ExecRequest(language=Language.PYTHON, code="1", timeout=5, memory_limit_mb=64)


def told(
    seen: JobOutcome, *, request: ExecRequest = REQUEST, of: Job | None = None, plan: ProgramPlan | None = None
) -> ExecResult:
    """The result that a caller gets."""
    asked = of or job()
    given = plan or ProgramPlan(steps=tuple(asked.steps))
    return run_result(request, seen, asked, given, backend="process", isolation="process+sandbox")


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [(0, 0, None), (42, 42, None), (137, 137, None), (-9, 137, 9), (-11, 139, 11)],
)
def test_a_signal_is_told_beside_the_exit_code_that_shells_use(code: int, exit_code: int, number: int | None) -> None:
    made = told(outcome(end(code)))
    assert (made.exit_code, made.signal) == (exit_code, number)


def test_a_run_that_was_stopped_has_no_exit_code_even_if_a_step_ended() -> None:
    made = told(outcome(end(0), stopped_by="timeout"))
    assert (made.exit_code, made.signal, made.status) == (None, None, Status.TIMEOUT)


def test_output_so_far_and_its_true_size_are_told_whatever_happened() -> None:
    made = told(outcome(stopped_by="timeout", stdout=FLOOD, stderr=b"e"))
    assert made.stdout.startswith("xxx")
    assert (made.stdout_bytes, made.stdout_truncated) == (5000, True)
    assert (made.stderr, made.stderr_bytes, made.stderr_truncated) == ("e", 1, False)


def test_the_result_says_under_which_limits_and_behind_which_walls_it_ran() -> None:
    made = told(outcome(end(0)))
    assert (made.timeout, made.memory_limit_mb, made.language) == (5.0, 64, "python")
    assert (made.backend, made.isolation) == ("process", "process+sandbox")
    free = replace(REQUEST, memory_limit_mb=None)
    assert told(outcome(end(0)), request=free).memory_limit_mb == 2048


def test_the_kernels_count_of_memory_is_believed_before_the_programs_own() -> None:
    counted = outcome(end(0, rss=7 << 20), reading=Reading(peak_bytes=9 << 20, cpu_seconds=2.0))
    made = told(counted)
    assert (made.peak_memory_bytes, made.cpu_seconds) == (9 << 20, 2.0)
    uncounted = told(outcome(end(0, rss=7 << 20, cpu=0.3)))
    assert (uncounted.peak_memory_bytes, uncounted.cpu_seconds) == (7 << 20, 0.3)


def test_a_program_from_the_cache_has_no_time_of_compiling() -> None:
    two = job(step(compiles=True), step())
    seen = replace(outcome(end(0), end(0)), compile_s=1.5)
    assert told(seen, of=two).compile_duration == 1.5
    cached = ProgramPlan(steps=tuple(two.steps), messages=b"warning: x", notes=("remembered",))
    assert told(seen, of=two, plan=cached).compile_duration == 0.0
    assert told(seen, of=two, plan=cached).notes == ("remembered",)


def test_a_run_that_was_stopped_while_it_compiled_says_so_and_one_that_ran_does_not() -> None:
    two = job(step(compiles=True), step())
    assert told(outcome(stopped_by="timeout"), of=two).notes == ("it was stopped while it was being compiled",)
    assert told(outcome(end(0), stopped_by="timeout"), of=two).notes == ()


@pytest.mark.parametrize(
    ("reading", "peak"),
    [
        (Reading(), 8 << 20),
        (Reading(peak_bytes=5 << 20), 5 << 20),
        (Reading(peak_bytes=5 << 20, refuses_memory=True), 8 << 20),
        (Reading(peak_bytes=9 << 20, refuses_memory=True), 9 << 20),
    ],
    ids=[
        "nothing was measured",
        "the kernel counted",
        "a look that came too late",
        "a look that saw several processes",
    ],
)
def test_a_peak_that_the_watchdog_missed_is_the_largest_process(reading: Reading, peak: int) -> None:
    assert outcome(end(0, rss=8 << 20), end(0), reading=reading).peak_bytes == peak


def test_a_run_that_left_no_trace_has_no_peak() -> None:
    assert outcome().peak_bytes is None
