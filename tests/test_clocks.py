"""The time of day may jump: deadlines are kept by a clock that does not."""

import ast
from pathlib import Path

import pytest

import sandbox_kernel
from benchmarks.soak_faults import jumping_clock
from sandbox_kernel import Sandbox
from sandbox_kernel.model import Status

PACKAGE = Path(sandbox_kernel.__file__).parent
#: Where the time of day is read, and for what: dates that are shown, or compared with those of files.
TIME_OF_DAY = {
    "backends/probes/capabilities.py": "when the report was measured",
    "backends/base.py": "files that are as young as the run are compared by content",
    "guest/wasm/inside/image_boot.py": "logging shows the time since the program began, not since the image was made",
    "guest/wasm/wasi.py": "the guest asked for it",
    "util/own_folder.py": "files that a dead host left aside",
    "net/audit.py": "when a request was decided",
    "report/capability_report.py": "when it was measured",
    "session/tree/state_tree.py": "when a cell was run",
    "workspace/changes.py": "files that are as young as the look are compared by content",
    "workspace/hidden.py": "folders that are as young as the look are listed again",
    "workspace/overlay/kept_changes.py": "a number that no other process has given to a change",
    "workspace/folder_link.py": "files that are as young as the cell are compared by content",
    "workspace/folder_copies.py": "files that are as young as the copy are compared by content",
    "workspace/overlay/session_layer.py": "files that are as young as the cell are compared by content",
    "wrapped/relaying/outside.py": "the date of a message",
}
_NAMES = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


def reads_the_time_of_day(source: str) -> bool:
    found = {
        (node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", ""), node.attr)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
    }
    names = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return bool((found | names) & _NAMES)


@pytest.mark.slow
def test_the_time_of_day_is_read_only_where_no_deadline_hangs_on_it() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if reads_the_time_of_day(path.read_text())
    }
    assert found == set(TIME_OF_DAY)


@pytest.mark.parametrize(
    "source", ["import time\ntime.time()", "from time import time", "import datetime\ndatetime.datetime.now()"]
)
def test_each_way_to_read_it_is_seen(source: str) -> None:
    assert reads_the_time_of_day(source)
    assert not reads_the_time_of_day("import time\ntime.monotonic()")


@pytest.mark.slow
def test_when_the_clock_jumps_nothing_ends_early_and_what_hangs_is_ended() -> None:
    with Sandbox() as box, box.session("python") as session, jumping_clock():
        assert box.run("print(1)", "python", timeout=60).stdout == "1\n"
        hung = box.run("import time; print('up', flush=True); time.sleep(600)", "python", timeout=3)
        assert (hung.status, hung.stdout) == (Status.TIMEOUT, "up\n")
        session.run("x = 1", timeout=60)
        assert session.run("x = 2\nwhile True: pass", timeout=0.3).rolled_back
        assert session.run("print(x)", timeout=60).stdout == "1\n"
