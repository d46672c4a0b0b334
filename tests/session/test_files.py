"""The files of sessions: told as changes, reached from the host, shared with the sandbox, and part of the state."""

from collections.abc import Iterator

import pytest

from sandbox_kernel import InvalidRequest, PathTraversal, Sandbox, SandboxError
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace import folder_link


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def kinds(result: object) -> dict[str, str]:
    return {change.path: change.kind for change in result.changes}  # type: ignore[attr-defined]


def test_a_cell_tells_what_it_created_modified_deleted_and_renamed(session: Session) -> None:
    assert kinds(session.run("open('a','w').write('1'); open('b','w').write('2'); open('c','w').write('3')")) == {
        "a": "created",
        "b": "created",
        "c": "created",
    }
    second = session.run("import os; open('a','w').write('one'); os.remove('b'); os.rename('c', 'd')")
    assert kinds(second) == {"a": "modified", "b": "deleted", "d": "renamed"}
    assert session.run("1").changes == ()


def test_a_file_that_is_rewritten_at_once_with_as_many_bytes_is_modified(session: Session) -> None:
    session.run("open('a','w').write('1')")
    assert kinds(session.run("open('a','w').write('2')")) == {"a": "modified"}


def test_hostile_names_are_told_harmlessly(session: Session) -> None:
    assert kinds(session.run("open('a\\x1b[31m\\n','w').close()")) == {"a\\x1b[31m\\n": "created"}


def test_a_flood_of_files_is_told_within_bounds(session: Session) -> None:
    result = session.run("for n in range(1200): open(f'{n}', 'w').close()")
    assert len(result.changes) == 1000
    assert any("1200 changed files" in note for note in result.notes)


@pytest.mark.parametrize("language", ["python", "command", "javascript"])
@pytest.mark.one_case
def test_the_host_reads_writes_and_lists_beneath_the_folder(open_one: object, language: str) -> None:
    session: Session = open_one(language)  # type: ignore[operator]
    session.write_file("data/in.txt", "hello")
    code = {
        "python": "open('out.txt', 'w').write(open('data/in.txt').read().upper())",
        "command": "tr a-z A-Z < data/in.txt > out.txt",
        "javascript": "const fs = require('fs');"
        "fs.writeFileSync('out.txt', fs.readFileSync('data/in.txt', 'utf8').toUpperCase())",
    }[language]
    result = session.run(code)
    assert result.ok, result.stderr
    assert session.read_file("/box/out.txt").strip() == b"HELLO"
    assert [entry.name for entry in session.list_dir() if not entry.name.startswith(".")] == ["data", "out.txt"]
    for path in ("../etc/passwd", "/etc/passwd"):
        with pytest.raises(PathTraversal):
            session.read_file(path)


def test_a_link_that_a_cell_planted_leads_nowhere(session: Session) -> None:
    session.run("import os; os.symlink('/etc/passwd', 'p'); os.symlink('/etc', 'd')")
    for path in ("p", "d/passwd"):
        with pytest.raises(SandboxError):
            session.read_file(path)
    with pytest.raises(SandboxError):
        session.write_file("d/written", "x")


def test_what_the_host_wrote_survives_a_rollback_and_the_undo_of_the_next_cell(session: Session) -> None:
    session.run("x = 1")
    session.write_file("given", "1")
    assert session.run("import os; os.remove('given')\nwhile True: pass", timeout=0.5).rolled_back
    assert session.read_file("given") == b"1"
    session.run("os = __import__('os'); os.remove('given')")
    session.undo()
    assert session.read_file("given") == b"1"


def test_a_session_finds_the_files_of_its_sandbox_and_leaves_its_own_there(box: Sandbox) -> None:
    box.write_file("early", "1")
    with box.session(files={"given": "2"}) as session:
        result = session.run("print(sorted(__import__('os').listdir())); open('made','w').write('3')")
        assert result.stdout == "['early', 'given']\n"
        assert kinds(result) == {"made": "created"}
        assert box.read_file("made") == b"3"
        box.write_file("late", "4")
        assert session.run("print(open('late').read())").stdout == "4\n"
        assert box.run("cat early given late made", "command").stdout == "1243"
        box.run("rm early; echo -n new > fresh", "command")
        assert session.run("print(sorted(__import__('os').listdir()))").stdout == "['fresh', 'given', 'late', 'made']\n"


def test_sessions_of_several_languages_share_their_files(box: Sandbox) -> None:
    python, shell = box.session("python"), box.session("command")
    python.run("open('table.csv','w').write('a\\nb\\n')")
    assert shell.run("wc -l < table.csv; echo c >> table.csv").stdout.strip() == "2"
    assert python.run("print(len(open('table.csv').readlines()))").stdout == "3\n"


def test_a_file_that_a_session_holds_open_stays_the_same_file(box: Sandbox) -> None:
    session = box.session("python")
    session.run("log = open('log','a'); print('one', file=log, flush=True)")
    box.write_file("other", "x")
    session.run("print('two', file=log, flush=True)")
    assert box.read_file("log") == b"one\ntwo\n"


def test_an_undo_takes_files_back_everywhere_but_keeps_what_others_gave(box: Sandbox) -> None:
    session = box.session("python")
    session.run("open('kept','w').close()")
    session.run("open('mine','w').close()")
    box.write_file("given", "1")
    session.run("open('mine','w').write('2')")
    session.undo(2)
    assert [entry.name for entry in box.list_dir()] == ["given", "kept"]
    assert session.run("print(open('given').read(), sorted(__import__('os').listdir()))").stdout == (
        "1 ['given', 'kept']\n"
    )


def test_a_rolled_back_cell_changes_no_file_and_leaves_none_in_the_sandbox(box: Sandbox) -> None:
    session = box.session("python")
    session.run("open('a','w').write('1')")
    late = session.run("open('a','w').write('2'); open('b','w').close()\nwhile True: pass", timeout=0.5)
    assert (late.rolled_back, late.changes) == (True, ())
    assert session.run("open('a').read()").changes == ()
    assert [entry.name for entry in box.list_dir()] == ["a"] and session.read_file("a") == box.read_file("a") == b"1"


def test_a_large_file_stays_in_its_session_and_it_is_said(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_link, "MAX_SHARED_FILE", 1 << 20)
    session = box.session("python")
    session.run("open('big','wb').write(bytes(10))")
    assert [entry.name for entry in box.list_dir()] == ["big"]
    result = session.run("open('big','wb').write(bytes(2 << 20))")
    assert any(note.startswith("big stays in this session") for note in result.notes)
    assert box.list_dir() == ()
    assert len(session.read_file("big", max_bytes=2 << 20)) == 2 << 20
    with pytest.raises(InvalidRequest, match="larger max_bytes"):
        session.read_file("big", max_bytes=(2 << 20) - 1)


def test_a_restarted_session_has_the_shared_files_again(box: Sandbox) -> None:
    session = box.session("python")
    session.run("open('f','w').write('x')")
    session.restart()
    assert session.run("print(open('f').read())").stdout == "x\n"


def test_completing_code_leaves_nothing_in_the_folder(session: Session) -> None:
    session.run("import json")
    session.complete("json.lo", 7)
    session.inspect("json.loads", 10)
    assert session.run("1").changes == ()


def test_a_host_without_room_for_shared_files_loses_no_result(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise OSError(28, "No space left on device")

    session = box.session("python")
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkdtemp", refuse)
        result = session.run("open('f','w').write('x'); 42")
    assert (result.ok, result.displays[-1].data["text/plain"], kinds(result)) == (True, "42", {"f": "created"})
    assert any("could not be shared" in note and "No space left" in note for note in result.notes)
    assert session.read_file("f") == b"x"
