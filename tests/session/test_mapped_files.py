"""Files that are mapped change without a new time: they are told, shared and rolled back all the same."""

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace import changes as writers
from sandbox_kernel.workspace.changes import compare, snapshot
from sandbox_kernel.workspace.tree.rooted import Rooted

Value = Callable[[Session, str], str]

#: Nothing is as young any more that it would be read for its age alone.
SETTLE = "\nwhile time.time() - os.stat('report').st_ctime < 0.2: time.sleep(0.01)\n"
BEGIN = "import mmap, os, time, ctypes, subprocess, sys\nopen('report', 'wb').write(b'A' * SIZE)" + SETTLE
MAP = "f = open('report', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:1] = b'A'; f.close()" + SETTLE
HIDE = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"

#: A process beside the worker, which changes the file whenever the worker writes to it.
BESIDE = (
    "p = subprocess.Popen([sys.executable, '-c', '''import mmap, ctypes, sys\n"
    "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    'f = open("report", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b"A"; f.close()\n'
    "for line in sys.stdin: m[:8] = line[:8].encode(); print(flush=True)\n"
    "'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
    "def write(text): p.stdin.write(text + '\\n'); p.stdin.flush(); p.stdout.readline()\n"
    "write('AAAAAAAA')" + SETTLE
)


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def kinds(result: object) -> dict[str, str]:
    return {change.path: change.kind for change in result.changes}  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", [MAP, HIDE + MAP, BESIDE], ids=["mapped", "hidden", "beside"])
@pytest.mark.one_case
def test_a_file_that_is_kept_mapped_is_told_shared_and_rolled_back(box: Sandbox, how: str) -> None:
    session = box.session()
    assert session.run(BEGIN.replace("SIZE", "4096")).ok
    made = session.run(how)
    assert made.ok, made.stderr
    assert session.run("1").changes == ()
    change = "write('CHANGED!')" if how == BESIDE else "m[:8] = b'CHANGED!'"
    assert kinds(session.run(change)) == {"report": "modified"}
    assert box.read_file("report")[:8] == b"CHANGED!"
    assert box.run("print(open('report').read(8))").stdout == "CHANGED!\n"
    assert session.run("1").changes == ()
    ended = session.run(change.replace("CHANGED", "TOOLATE") + "\nos._exit(1)")
    assert (ended.rolled_back, ended.changes) == (True, ())
    assert session.run("print(open('report').read(8))").stdout == "CHANGED!\n"
    assert kinds(session.run(change.replace("CHANGED", "ANOTHER"))) == {"report": "modified"}
    session.undo()
    assert session.read_file("report")[:8] == b"CHANGED!"
    assert box.read_file("report")[:8] == b"CHANGED!"


def test_a_mapped_file_that_is_too_large_to_be_compared_counts_as_modified_until_it_is_closed(
    open_one: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_one(checkpoints=0)  # each of them has it open too
    monkeypatch.setattr("sandbox_kernel.workspace.changes.HASHED_OPEN_BYTES", 1000)
    monkeypatch.setattr("sandbox_kernel.workspace.changes.HASHED_FILE_BYTES", 1000)
    session.run(BEGIN.replace("SIZE", "1001"))
    session.run(MAP)
    assert kinds(session.run("m[:8] = b'CHANGED!'")) == {"report": "modified"}
    assert kinds(session.run("1")) == {"report": "modified"}
    assert kinds(session.run("m.close()")) == {"report": "modified"}
    assert session.run("1").changes == ()


def test_without_checkpoints_a_mapped_file_is_told_too(open_one: Callable[..., Session]) -> None:
    session = open_one(checkpoints=0)
    session.run(BEGIN.replace("SIZE", "4096"))
    session.run(MAP)
    assert kinds(session.run("m[:8] = b'CHANGED!'")) == {"report": "modified"}


def test_a_cell_that_opens_files_all_the_time_does_not_end_the_host_that_looks_for_writers(session: Session) -> None:
    busy = """
import threading, os
open('report', 'w').close()
def busy():
    while True:
        os.close(os.open('report', os.O_RDWR)); os.utime('report')
for _ in range(4): threading.Thread(target=busy, daemon=True).start()
"""
    assert session.run(busy).ok
    for _ in range(20):
        assert session.run("1").ok


def test_a_file_is_open_for_writing_as_long_as_a_descriptor_or_a_mapping_can_write_to_it(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    known = writers.tells_who_writes(folder)
    os.close(folder)
    if not known:
        pytest.skip("the file system of the tests does not tell who writes")
    path = tmp_path / "a"
    path.write_bytes(b"a" * 4096)

    def is_open() -> bool:
        fd = os.open(path, os.O_RDONLY)
        try:
            return writers.open_for_writing(fd, tells=True)
        finally:
            os.close(fd)

    assert not is_open()
    with open(path, "rb") as reader:
        assert not is_open()
        with mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ):
            assert not is_open()
    with open(path, "r+b") as writer:
        assert is_open()
        mapped = mmap.mmap(writer.fileno(), 0)
    assert is_open()
    mapped.close()
    assert not is_open()


def test_where_the_file_system_does_not_tell_every_file_that_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.workspace.changes.tells_who_writes", lambda folder: False)
    monkeypatch.setattr("sandbox_kernel.workspace.changes.TICK_NS", -(1 << 62))
    (tmp_path / "a").write_bytes(b"A" * 4096)
    with Rooted.at(tmp_path) as rooted, open(tmp_path / "a", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        mapped[0:1] = b"A"
        before = snapshot(rooted, shared=True)
        assert compare(before, snapshot(rooted, since=before, shared=True)) == ()
        mapped[0:1] = b"B"
        after = snapshot(rooted, since=before, shared=True)
        assert [change.path for change in compare(before, after)] == ["a"]
        mapped.close()


def test_a_look_for_writers_leaves_a_program_that_opens_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a")
    stop, failures = threading.Event(), list[OSError]()

    def program() -> None:
        while not stop.is_set():
            try:
                os.close(os.open(path, os.O_RDWR))
            except OSError as error:
                failures.append(error)

    thread = threading.Thread(target=program)
    thread.start()
    for _ in range(500):
        fd = os.open(path, os.O_RDONLY)
        writers.open_for_writing(fd, tells=True)
        os.close(fd)
    stop.set()
    thread.join()
    assert failures == []
