"""Rights of a running session: it gains folders, domains, variables and memory, keeps its own, and loses them again."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from sandbox_kernel import InvalidRequest, PolicyViolation, Sandbox, SandboxPolicy, SessionError
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.session.session import Session, reaching
from tests.loopback_server import QuietHandler, serving


class Fine(QuietHandler):
    """Answers everything with nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("a,b\n")
    return tmp_path


@pytest.fixture(params=["first", "forked"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session in a jail that bubblewrap made, and in one that a template forked."""
    with Sandbox() as box:
        if request.param == "forked":
            for _ in range(2):
                box.session().close()
        with box.session() as made:
            made.run("import os; kept = 41")
            yield made


@pytest.mark.one_case
def test_a_folder_that_is_shown_late_keeps_the_variables(session: Session, folder: Path) -> None:
    session.allow(mount=f"{folder}:/data")
    session.allow(mount=f"{folder}:/mnt/in/side")
    code = "print(kept, open('/data/rows.csv').read().strip(), os.listdir('/mnt/in/side'))"
    assert session.run(code).stdout == "41 a,b ['rows.csv']\n"
    assert "Read-only" in session.run("open('/data/x', 'w')").stderr
    assert not (folder / "x").exists()
    # The rights are there after an undo, a rollback and a restart.
    session.undo(1)
    assert session.run(code).ok
    assert session.run("os._exit(3)").rolled_back
    assert session.run(code).ok
    session.restart()
    assert session.run("import os; kept = 41\n" + code).stdout == "41 a,b ['rows.csv']\n"
    session.revoke(mount=f"{folder}:/mnt/in/side")
    assert session.run("print(os.listdir('/mnt/in/side'))").stdout == "[]\n"


@pytest.mark.one_case
def test_a_single_file_is_shown_without_its_folder(session: Session, folder: Path) -> None:
    (folder / "secret.txt").write_text("no")
    (folder / "out.txt").write_text("old")
    mounts = (
        f"{folder}/rows.csv:/data/in/rows.csv",
        f"{folder}/rows.csv:/project/rows.csv",
        f"{folder}/out.txt:/mnt/out.txt:rw",
    )
    for mount in mounts:
        session.allow(mount=mount)
    code = "print(kept, open('/data/in/rows.csv').read().strip(), open('/project/rows.csv').read().strip())"
    assert session.run(code).stdout == "41 a,b a,b\n"
    assert session.run("print(os.listdir('/data/in'), os.listdir('/mnt'))").stdout == "['rows.csv'] ['out.txt']\n"
    assert "Read-only" in session.run("open('/data/in/rows.csv', 'w')").stderr
    assert session.run("open('/mnt/out.txt', 'w').write('new')").ok
    assert (folder / "out.txt").read_text() == "new"
    assert session.run("os._exit(3)").rolled_back
    assert session.run(code).ok
    for mount in mounts:
        session.revoke(mount=mount)
    assert session.run("print(open('/data/in/rows.csv').read() or 'nothing')").stdout == "nothing\n"


@pytest.mark.one_case
def test_a_folder_that_is_in_use_is_not_called_taken_back(session: Session, folder: Path) -> None:
    session.allow(mount=f"{folder}:/data")
    session.run("held = open('/data/rows.csv')")
    with pytest.raises(PolicyViolation, match="still uses it"):
        session.revoke(mount=f"{folder}:/data")
    assert session.run("print(held.read())").stdout == "a,b\n\n"


@pytest.mark.slow
def test_a_folder_can_be_shown_at_many_places(session: Session, folder: Path) -> None:
    places = ("/mnt", "/data/deep/er", "/home/me/project", "/content", "/project", "/opt/ml/input")
    for place in places:
        session.allow(mount=f"{folder}:{place}")
    assert (
        session.run(f"print([os.listdir(place) for place in {places}])").stdout == f"{[['rows.csv']] * len(places)}\n"
    )
    assert session.run("os._exit(3)").rolled_back
    assert session.run(f"print([os.listdir(place) for place in {places}])").ok
    for place in places:
        session.revoke(mount=f"{folder}:{place}")
    session.allow(mount=f"{folder}:/data")
    assert session.run("print(os.listdir('/data'), os.listdir('/mnt'))").stdout == "['rows.csv'] []\n"


@pytest.mark.attack("W05", "workspace")
@pytest.mark.one_case
def test_a_link_that_a_program_made_leads_no_late_folder_elsewhere(session: Session, folder: Path) -> None:
    session.run("os.symlink('/box', '/tmp/way'); os.makedirs('/tmp/own/place')")
    # Programs move what is in /tmp, also while something is mounted there or taken off.
    for place in ("/tmp/way/in", "/tmp/own/place", "/tmp/new"):
        with pytest.raises(PolicyViolation, match="restart --keep"):
            session.allow(mount=f"{folder}:{place}")
    assert session.run("print(os.listdir('/box'))").stdout == "[]\n"


@pytest.mark.slow
def test_a_late_folder_can_be_writable(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with Sandbox(SandboxPolicy.preset("standard").mount(str(tmp_path / "first"), "/data")) as box:
        for _ in range(2):
            with box.session() as session:
                session.run("import os, socket; kept = 41")
                session.allow(mount=f"{tmp_path}/second:/mnt/out:rw")
                assert session.run("open('/mnt/out/made', 'w').write(str(kept))").ok
                made = tmp_path / "second" / "made"
                assert (made.read_text(), made.stat().st_uid) == ("41", os.getuid())
                assert "not supported" in session.run("socket.socket(socket.AF_UNIX)").stderr
                session.restart()
                assert session.run("import os; print(os.listdir('/mnt/out'))").stdout == "['made']\n"
                session.revoke(mount=f"{tmp_path}/second:/mnt/out")
                assert session.run("print(os.listdir('/mnt/out'))").stdout == "[]\n"


@pytest.mark.slow
def test_a_folder_beside_one_that_the_session_began_with_is_shown(tmp_path: Path) -> None:
    for name in ("first", "first/below", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "a").write_text("seen")
    began = SandboxPolicy.preset("standard").mount(str(tmp_path / "first"), "/mnt/in/first", writable=True)
    began = began.mount(str(tmp_path / "second"), "/mnt/in/first/below").mount(str(tmp_path / "first/a"), "/mnt/a")
    with Sandbox(began) as box:
        for _ in range(2):  # in a jail that bubblewrap made, and in one that a template forked
            with box.session() as session:
                session.run("import os; held = open('/mnt/in/first/a'); os.chdir('/mnt/in')")
                session.allow(mount=f"{tmp_path}/second:/mnt/in/second")
                seen = session.run("print(held.read(), open('/mnt/a').read(), sorted(os.listdir('/mnt/in')))")
                assert seen.stdout == "seen seen ['first', 'second']\n", seen.stderr
                assert session.run("open('/mnt/in/first/made', 'w').close()").ok
                for place in ("/mnt/in/first/below/x", "/mnt/in/second/x", "/mnt/a", "/mnt/x"):
                    assert "Read-only" in session.run(f"open('{place}', 'w')").stderr, place
                session.restart()
                assert session.run("import os; print(sorted(os.listdir('/mnt/in')))").stdout == "['first', 'second']\n"
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == ["a", "below", "made"]


def test_what_a_running_session_cannot_have_is_refused_with_what_to_do(session: Session, folder: Path) -> None:
    session.allow(mount=f"{folder}:/mnt/x")
    for mount, advice in (
        (f"{folder}:/elsewhere", "/mnt/elsewhere, or begin a session"),
        (f"{folder}:/data:rw", "unix sockets.*--here"),
        (f"{folder}:/box/in", "rollback restores"),
        (f"{folder}:/mnt/x/deeper", "cover each other; mount it at /mnt/deeper"),
        (f"{folder}:/mnt", "cover each other"),
        (f"{folder}/rows.csv:/data", "name the file inside as well: --mount .*rows.csv:/data/rows.csv"),
        ("/dev/null:/data/null", "neither a folder nor a regular file"),
        (f"{folder}/missing:/data", "does not resolve"),
    ):
        with pytest.raises(PolicyViolation, match=advice):
            session.allow(mount=mount)
    with pytest.raises(PolicyViolation, match="restart"):
        session.allow(memory_mb=1 << 20)
    with pytest.raises(PolicyViolation, match="was not given"):
        session.revoke(domain="example.org")
    with pytest.raises(InvalidRequest, match="say what"):
        session.allow()
    assert session.run("print(kept)").stdout == "41\n"


def test_no_socket_of_the_host_is_reached_through_a_late_folder(session: Session, folder: Path) -> None:
    place = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(folder)
        try:
            server.bind("control.sock")
        finally:
            os.chdir(place)
        os.chmod(folder / "control.sock", 0o777)
        server.listen(1)
        session.allow(mount=f"{folder}:/data")
        result = session.run("import socket; socket.socket(socket.AF_UNIX).connect('/data/control.sock')")
    assert result.error is not None and result.error.ename in ("ConnectionRefusedError", "PermissionError")


@pytest.mark.slow
def test_a_domain_that_is_allowed_late_keeps_the_variables(folder: Path) -> None:
    with serving(Fine) as port, Sandbox(allow_private_for=["127.0.0.1"]) as box, box.session() as session:
        session.run("import urllib.request as r; kept = 1")
        fetch = f"print(r.urlopen('http://127.0.0.1:{port}/', timeout=5).status, kept)"
        assert session.run(fetch).error is not None
        session.allow(domain=f"127.0.0.1:{port}")
        found = session.run(fetch)
        assert found.stdout == "200 1\n", found.stderr
        session.undo(1)
        assert session.run(fetch).stdout == "200 1\n"
        refused = session.run(f"r.urlopen('http://127.0.0.1:{port + 1}/', timeout=5)")
        assert refused.violations
        session.revoke(domain=f"127.0.0.1:{port}")
        assert session.run(fetch).error is not None


def test_a_domain_for_one_cell_ends_with_it_also_where_the_cell_ended_its_worker(folder: Path) -> None:
    async def once(session: Session) -> None:
        async with reaching(session, ["example.org"]):
            assert session.reaches("example.org")
            # It dies when the cell has ended, before the right is taken back.
            await session.arun("import os, threading; threading.Thread(target=lambda: os._exit(3)).start()")

    with Sandbox() as box, box.session() as session:
        asyncio.run(once(session))
        assert not session.reaches("example.org")
        session.run("1")
        assert not session.reaches("example.org")


def test_a_domain_is_taken_back_without_the_worker(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.allow(domain="example.org")

    def dead(*_: object, **__: object) -> NoReturn:
        raise SessionError("it died between cells")

    with monkeypatch.context() as patch:
        patch.setattr(session._supervisor, "turn", dead)
        session.revoke(domain="example.org")
    assert not session.reaches("example.org")
    proxy = session._supervisor.live.proxy
    assert not proxy.policy.check_request("GET", "http://example.org/").allowed


def test_environment_and_memory_that_come_late_keep_the_state(session: Session) -> None:
    session.allow(env={"WHO": "it's me"})
    if find_hierarchies() is not None:
        session.allow(memory_mb=600)
        assert session.memory_mb >= 600
    else:
        with pytest.raises(PolicyViolation, match="began with 512 MB"):
            session.allow(memory_mb=600)
    assert session.run("print(os.environ['WHO'], kept)").stdout == "it's me 41\n"
    session.undo(2)
    assert session.run("import os; print(os.environ['WHO'])").stdout == "it's me\n"
    session.revoke(env=["WHO"])
    assert session.run("print('WHO' in os.environ)").stdout == "False\n"


@pytest.mark.one_case
def test_a_right_does_not_count_as_a_cell_for_undo(session: Session) -> None:
    session.run("x = 1")
    session.run("x = 2")
    session.allow(env={"A": "b"})
    session.undo(1)
    assert session.run("print(x)").stdout == "1\n"


def test_a_variable_that_was_taken_back_comes_back_in_no_earlier_state(session: Session, tmp_path: Path) -> None:
    look = "import os; print(os.environ.get('WHO'))"
    session.run("x = 1")
    session.allow(env={"WHO": "SECRET"})
    assert session.run(look).stdout == "SECRET\n"
    session.run("y = 2")
    session.revoke(env=["WHO"])
    session.undo(2)
    assert session.run(look).stdout == "None\n"
    session.save(tmp_path / "s")
    assert b"SECRET" not in (tmp_path / "s").read_bytes()
    with session.fork() as other:
        assert other.run(look).stdout == "None\n"
    session.allow(env={"WHO": "again"})
    assert session.run(look).stdout == "again\n"


def test_a_shell_session_takes_variables() -> None:
    with Sandbox() as box, box.session("command") as session:
        session.run("mine=1")
        session.allow(env={"WHO": "a 'b' $c"})
        assert session.run("echo $mine $WHO").stdout == "1 a 'b' $c\n"


def test_what_to_do_about_a_right_of_the_start_is_said(folder: Path) -> None:
    policy = SandboxPolicy().mount(folder, "/data")
    with Sandbox(policy) as box, box.session() as session, pytest.raises(PolicyViolation, match="load_session"):
        session.revoke(mount=f"{folder}:/data")


@pytest.mark.slow
def test_behind_landlock_a_right_is_refused_with_what_works(folder: Path) -> None:
    with Sandbox() as box:
        box.backend = ProcessBackend(enforcer="landlock", policy=box.policy)
        with box.session() as session:
            session.run("kept = 41")
            for right, works in (
                ({"mount": f"{folder}:{folder}"}, "restart --keep"),
                ({"mount": f"{folder}:/data"}, f"--mount {folder}:{folder}"),
                ({"domain": "example.org"}, "fetch on the host"),
            ):
                with pytest.raises(PolicyViolation, match=works):
                    session.allow(**right)  # type: ignore[arg-type]
            session.allow(env={"A": "b"})
            assert session.run("import os; print(kept, os.environ['A'])").stdout == "41 b\n"
