"""Fixtures for every test: what a missing part means, and what must not be left behind."""

import atexit
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import second_tries

# A shared machine may pause for a second anywhere: no example fails for the time it took. In CI the same examples are
# tried each time, so that a failure can be reproduced.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if os.environ.get("SANDBOX_KERNEL_REQUIRE_ALL") == "1" else "house")

# What a shell starts in the background has SIGINT ignored, and so would have every child: half of the tests interrupt one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Temporary files of this run alone, so that what others on the machine do is not taken for a leak.
#: Its name is short, because the path of a unix socket must be. Workers of a parallel run make theirs beside that of
#: the process which started them, not below it.
_BASE = os.environ.setdefault("SANDBOX_KERNEL_TEST_BASE", tempfile.gettempdir())
TEMPORARY = tempfile.mkdtemp(prefix="sk-", dir=_BASE)
os.chmod(TEMPORARY, 0o755)
os.environ["TMPDIR"] = tempfile.tempdir = TEMPORARY
atexit.register(shutil.rmtree, TEMPORARY, ignore_errors=True)


@atexit.register
def _forget_folders() -> None:
    """Remove the marks of folders of this run that programs could write to."""
    for mark in Path("~/.local/state/sandbox-kernel/writable").expanduser().glob("*"):
        if mark.is_symlink() and os.readlink(mark).startswith(f"{TEMPORARY}/"):
            mark.unlink(missing_ok=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick`` runs what ``make test`` runs: every promise once."""
    parser.addoption("--quick", action="store_true", help="every promise once (make test)")


#: With ``--quick`` a test with one of these marks is left out; ``one_case`` leaves out all cases but the first.
NEVER_QUICK = ("slow", "browser")
#: How many more plain tests such a test takes the time of.
MORE_WEIGHT = {"slow": 20, "browser": 200}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--quick`` leave out what is slow and what proves a promise again. Long parts first: each has one worker."""
    if config.getoption("--quick"):
        first = {item.nodeid.split("[", 1)[0]: item for item in reversed(items)}
        chosen = {item for item in items if not any(map(item.get_closest_marker, NEVER_QUICK))}
        chosen -= {item for item in chosen if item.get_closest_marker("one_case")} - set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    weight = Counter(part(item.nodeid) for item in items)
    for item in items:
        weight[part(item.nodeid)] += sum(more for mark, more in MORE_WEIGHT.items() if item.get_closest_marker(mark))
    items.sort(key=lambda item: -weight[part(item.nodeid)])


def part(nodeid: str) -> str:
    """The part of the suite that a test belongs to, which one worker runs: its file, and all of one browser's are one.

    The tests of a browser share a JupyterLab and a loaded page, which take ten seconds to start.
    """
    if nodeid.startswith("tests/browser/"):
        return "tests/browser in Firefox" if "firefox" in nodeid.rpartition("[")[2] else "tests/browser"
    return nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With ``--dist loadfile``, give each worker one part after the other."""
    from xdist.scheduler import LoadFileScheduling

    class LoadPartScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return part(nodeid)

    return LoadPartScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


#: Tests that needed a second try in this run, each with the last lines of what its first try said.
_tried_again: dict[str, str] = {}
#: Those of them that needed one at the commit before too.
_flaky: list[str] = []
#: Characters of a first try's failure that are printed.
_MOST_OF_A_FAILURE = 3000

#: Where to write what came of the attacks; ``python -m tests.attacks.table`` sets it and makes the table.
ATTACK_RECORD = os.environ.get("SANDBOX_KERNEL_ATTACK_RECORD")
_attacks: list[dict[str, str]] = []

REQUIRE_ALL = os.environ.get("SANDBOX_KERNEL_REQUIRE_ALL") == "1"


def need(found: object, reason: str) -> None:
    """Skip with a reason where a part is missing; fail where everything is required (``SANDBOX_KERNEL_REQUIRE_ALL=1``)."""
    if not found:
        if REQUIRE_ALL:
            pytest.fail(f"required here and missing: {reason}")
        pytest.skip(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked ``attack(id, where)`` says so in its report, which also crosses the processes of a parallel run."""
    item.user_properties += [("attack", mark.args) for mark in item.iter_markers("attack")]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note tests that needed a second try, how each test of an attack ended, and what it saw (``ended``)."""
    if report.outcome == "rerun":
        _tried_again.setdefault(report.nodeid, f"{report.when}: {report.longreprtext}"[-_MOST_OF_A_FAILURE:])
    if ATTACK_RECORD is None or (report.when != "call" and report.passed):
        return
    ended = next((str(value) for name, value in report.user_properties if name == "ended"), "")
    for name, value in report.user_properties:
        if name == "attack" and isinstance(value, (list, tuple)):
            row = {"id": value[0], "where": value[1], "test": report.nodeid, "outcome": report.outcome, "ended": ended}
            _attacks.append(row)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the records, once, by the process that all reports come to."""
    if hasattr(session.config, "workerinput"):
        return
    if ATTACK_RECORD is not None:
        Path(ATTACK_RECORD).write_text(json.dumps(_attacks, indent=1))
    if second_tries.FOLDER is not None:
        repeated = second_tries.record(set(_tried_again), Path(second_tries.FOLDER), second_tries.commit())
        if repeated:
            _flaky.extend(repeated)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests that needed a second try, and those that needed one at the commit before too."""
    for name, said in sorted(_tried_again.items()):
        terminalreporter.write_line(f"needed a second try: {name}")
        for line in said.splitlines():
            terminalreporter.write_line(f"    {line}")
    for name in _flaky:
        terminalreporter.write_line(f"FAILED {name}: needed a second try in two commits in a row")


def descendants(pid: int) -> set[int]:
    """All processes below one, by /proc."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        for task in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                children = {int(child) for child in task.read_text().split()}
            except OSError:
                continue
            waiting += children - found
            found |= children
    return found


def cgroup_leaves() -> set[str]:
    """Groups that sandboxes of this very process hold."""
    from benchmarks.soak_holdings import own_leaves

    return own_leaves()


def open_descriptors() -> dict[str, str]:
    """Descriptors of this process, by number."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


def end_spares() -> None:
    """End every runner and ready-made sandbox of this process; backends make new ones when they need them."""
    from sandbox_kernel.backends.crowd import close_crowds
    from sandbox_kernel.backends.process import shared_pool
    from sandbox_kernel.jail.pool import close_all

    close_crowds()
    close_all()
    shared_pool.cache_clear()


@pytest.fixture(autouse=True)
def own_measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measurements that a test pretends to have made are kept in the test's own folder."""
    from sandbox_kernel.backends.probes import measured_cache

    monkeypatch.setattr(measured_cache, "cache_folder", lambda: str(tmp_path / "measured"))


@pytest.fixture(autouse=True)
def lines_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of these tests are the project's own, so their lines give rights; tests of rights choose a setting."""
    monkeypatch.setenv("SANDBOX_KERNEL_LINES", "all")


#: Files of the machine that hostile programs try to write to; tests that run as root could lose them.
PRECIOUS = (
    "/etc/passwd",
    "/etc/shadow",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/ld.so.preload",
    "/usr/bin/bwrap",
)


def _precious() -> dict[str, tuple[int, int, int] | None]:
    found: dict[str, tuple[int, int, int] | None] = {}
    for path in PRECIOUS:
        try:
            seen = os.stat(path)
            found[path] = seen.st_ino, seen.st_size, seen.st_mtime_ns
        except OSError:
            found[path] = None
    return found


@pytest.fixture(autouse=True)
def the_machine_is_unharmed() -> Iterator[None]:
    """No test may change a file of the machine: not a hostile program, and not a fault that we did ourselves."""
    before = _precious()
    yield
    assert _precious() == before


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """After the test: no process, control group, descriptor, mount or temporary folder more than before.

    Spares and templates are processes, and they are meant to stay. Those of earlier tests are ended first, and those
    of this one at its end.
    """
    end_heartbeats()
    before = holdings()
    yield
    names = ("processes", "control groups", "descriptors", "mounts", "temporary folders")
    # Threads that end in the background close what they hold a moment later; what is left behind stays.
    until = time.monotonic() + 10
    while True:
        more = {what: new - old for what, old, new in zip(names, before, holdings(), strict=True) if new - old}
        if not more or time.monotonic() > until:
            break
        time.sleep(0.1)
    assert not more, f"left behind: {more}"


def end_heartbeats() -> None:
    """End the threads of Jupyter clients that earlier tests left behind: they open and close sockets at any time."""
    known = sys.modules.get("jupyter_client.channels")
    for thread in threading.enumerate() if known is not None else ():
        if isinstance(thread, known.HBChannel):
            thread.stop()


def descriptors_by_kind() -> set[tuple[str, int]]:
    """Descriptors of this process, each as what it is and a count of its kind; its number may change."""
    kinds = Counter(re.sub(r"\[\d+\]", "", target) for target in open_descriptors().values())
    return {(kind, number) for kind, count in kinds.items() for number in range(count)}


def holdings() -> tuple[set[object], ...]:
    """Processes, control groups, descriptors, mounts and temporary folders of this process; its spares are ended."""
    from sandbox_kernel.jail.accounting.cgroups import find_hierarchies

    find_hierarchies()  # the process's own place for control groups, which it keeps, and the locks on it
    end_spares()
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = (descendants(os.getpid()), cgroup_leaves(), descriptors_by_kind(), mounts, _temporary())
    return tuple(set(kind) for kind in found)


def _temporary() -> set[str]:
    found = {name for name in os.listdir(TEMPORARY) if not name.startswith("pytest-of-")}
    in_memory = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return found | {name for name in in_memory if name.startswith(f"sandbox-kernel-jail-{os.getpid()}-")}
