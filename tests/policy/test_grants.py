"""A program that may write to a folder plants a link there: no way into a sandbox shows what it leads to."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel import (
    BackendUnavailable,
    EnforcerUnavailable,
    PolicyViolation,
    Sandbox,
    SandboxError,
    SandboxPolicy,
)
from sandbox_kernel.agent.run_service import RunCode, RunQueue
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.jail import bubblewrap_jail
from sandbox_kernel.jail.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.rules.bubblewrap import find_bwrap
from sandbox_kernel.languages.c_family import find_compiler
from sandbox_kernel.languages.interpreters import find_program
from sandbox_kernel.languages.node import find_node
from sandbox_kernel.languages.rust import find_rustc
from sandbox_kernel.model import ExecRequest, ExecResult, Language
from sandbox_kernel.net.audit import AuditFile
from sandbox_kernel.notebook.options.cell_options import policy_of
from sandbox_kernel.notebook.options.parse_cell import parse_options
from sandbox_kernel.policy import Grant
from sandbox_kernel.workspace.given_grants import GivenGrants
from sandbox_kernel.wrapped.needed_files import needed_files

CANARY = "CANARY-PRIVATE-KEY"


@pytest.fixture(autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A project with folders and a file, and a secret beside it."""
    for name in ("project/data", "project/a/data", "secret/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project" / "notes.txt").write_text("mine")
    for name in ("secret/key", "secret/data/key"):
        (tmp_path / name).write_text(CANARY)
    yield tmp_path
    assert sorted(path.name for path in (tmp_path / "secret").rglob("*")) == ["data", "key", "key"]


def plant(name: str, leads_to: Path, work: str = "/work") -> str:
    return f"import os; os.rename('{work}/{name}', '{work}/old'); os.symlink({str(leads_to)!r}, '{work}/{name}')"


def policy_for(place: Path, granted: str, writable: bool = False) -> SandboxPolicy:
    standard = SandboxPolicy.preset("standard")
    return standard.mount(place / "project", "/work", True).mount(place / "project" / granted, "/g", writable)


@pytest.mark.parametrize(("granted", "planted", "leads_to"), [
    ("data", "data", "secret"), ("notes.txt", "notes.txt", "secret/key"), ("a/data", "a", "secret"),
])  # fmt: skip
@pytest.mark.parametrize("writable", [False, True])
def test_the_next_run_of_a_sandbox_is_refused(
    place: Path, granted: str, planted: str, leads_to: str, writable: bool
) -> None:
    policy = policy_for(place, granted, writable)
    with Sandbox(policy) as box:
        assert box.run(plant(planted, place / leads_to)).ok
        with pytest.raises(PolicyViolation, match="exchanged"):
            box.run("print(open('/g').read())")
        with pytest.raises(PolicyViolation, match="exchanged"):
            box.session("python")
        with pytest.raises(PolicyViolation, match="exchanged"):
            box.run("print(1)", "javascript", backend="wasm")
    with Sandbox(policy) as box, pytest.raises(PolicyViolation, match="programs may write to"):
        box.run("print(1)")


def test_a_run_in_another_process_with_the_same_policy_is_refused(place: Path) -> None:
    run = (
        "import sys; from sandbox_kernel import Sandbox, SandboxPolicy; p = sys.argv[1]; "
        "print(Sandbox(SandboxPolicy.preset('standard').mount(p, '/work', True).mount(p + '/data', '/g'))"
        ".run(sys.argv[2]))"
    )
    project = str(place / "project")
    command = [sys.executable, "-c", run, project]
    planted = subprocess.run([*command, plant("data", place / "secret")], capture_output=True, text=True, check=False)
    assert planted.returncode == 0, planted.stderr
    tried = subprocess.run([*command, "print(open('/g/key').read())"], capture_output=True, text=True, check=False)
    assert "PolicyViolation" in tried.stderr
    assert CANARY not in tried.stdout


def test_a_session_that_starts_again_and_a_late_mount_are_refused(place: Path) -> None:
    with Sandbox(SandboxPolicy.preset("standard").mount(place / "project", "/work", True)) as box:
        session = box.session("python")
        session.allow(mount=f"{place}/project/data:/data")
        assert session.run(plant("a/data", place / "secret")).ok
        with pytest.raises(PolicyViolation, match="programs may write to"):
            session.allow(mount=f"{place}/project/a/data:/more")
        with pytest.raises(PolicyViolation, match="programs may write to"):
            Sandbox(here=place / "project" / "a" / "data")
        (place / "project" / "data").rename(place / "project" / "away")
        (place / "project" / "data").symlink_to(place / "secret")
        session.restart()
        with pytest.raises(PolicyViolation, match="exchanged"):
            session.run("print(open('/data/key').read())")


def test_a_late_mount_compares_what_it_shows(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as box:
        session = box.session("python")
        given = GivenGrants.now

        def planted(grants: GivenGrants, **asked: bool) -> tuple[Grant, ...]:
            return tuple(replace(grant, identity=(1, 1)) for grant in given(grants, **asked))

        monkeypatch.setattr(GivenGrants, "now", planted)
        with pytest.raises(PolicyViolation, match="exchanged meanwhile"):
            session.allow(mount=f"{place}/secret:/data")
        assert session.run("import os; print(os.path.exists('/data/key'))").stdout == "False\n"


@pytest.mark.parametrize("enforcer", ["bubblewrap", "landlock"])
@pytest.mark.one_case
def test_grants_in_their_own_place_are_refused_behind_all_walls(place: Path, enforcer: str) -> None:
    project = str(place / "project")
    for path in (place, *place.rglob("*")):
        os.chmod(path, 0o777)
    policy = SandboxPolicy.preset("standard").allow_read_write(project).allow_read_write(f"{project}/a/data")
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer, policy)

    def run(code: str) -> ExecResult:
        return backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=20))

    assert run(plant("a", place / "secret", project)).ok
    with pytest.raises(PolicyViolation, match="exchanged"):
        run(f"print(open('{place}/secret/data/key').read())")


@pytest.mark.parametrize("enforcer", ["bubblewrap", "landlock"])
@pytest.mark.one_case
def test_walls_compare_what_they_show_when_it_is_exchanged_after_the_check(
    place: Path, enforcer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (place, *place.rglob("*")):
        os.chmod(path, 0o777)
    data, project = place / "project" / "data", place / "project"
    policy = SandboxPolicy.preset("standard").allow_read(data)
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer, policy)
    given = backend.grants.now()
    data.rename(project / "old")
    data.mkdir(mode=0o777)
    (data / "key").write_text(CANARY)
    monkeypatch.setattr(backend.grants, "now", lambda **_: given)
    code = f"print(open('{data}/key').read())"
    with pytest.raises(SandboxError, match="exchanged") as raised:
        backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=20))
    assert CANARY not in str(raised.value)


def test_a_jail_that_shows_something_else_is_ended_before_its_program(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an ordinary user, bubblewrap resolves the path itself: the host compares what it has mounted."""
    backend = ProcessBackend(ProcessConfig(pool_size=0), "bubblewrap", policy_for(place, "data"))
    request = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=20)
    walls = backend.walls(request, backend._recipe(request))
    plain = bubblewrap_jail.plan_stage
    monkeypatch.setattr(bubblewrap_jail, "plan_stage", lambda *a, identities, **k: plain(*a, **k))
    (place / "project" / "data").rename(place / "project" / "old")
    (place / "project" / "data").symlink_to(place / "secret")
    jail = BubblewrapJail(walls)
    with pytest.raises(PolicyViolation, match="exchanged"):
        jail.wait_ready()
    assert not jail.alive


def test_the_next_request_of_a_service_is_refused(place: Path) -> None:
    async def two() -> list[dict[str, object]]:
        queue = RunQueue(policy_for(place, "data"), 2, 2)
        codes = (plant("data", place / "secret"), "print(open('/g/key').read())")
        found: list[dict[str, object]] = []

        async def deliver(answer: dict[str, object]) -> None:
            found.append(answer)

        for code in codes:
            await queue.run(RunCode(code=code, language="python", run_timeout=20.0), deliver)
        return found

    first, second = asyncio.run(two())
    assert first["status"] == "Success"
    assert "exchanged" in str(second)
    assert CANARY not in str(second)


@pytest.mark.parametrize("target", ["/work", None])
@pytest.mark.one_case
def test_programs_cannot_exchange_the_interpreter_in_a_folder_that_they_may_write_to(
    tmp_path: Path, target: str | None
) -> None:
    environment = tmp_path / "sub" / "deep" / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, cwd="/")
    give = f".mount({str(tmp_path)!r}, {target!r}, True)" if target else f".allow_read_write({str(tmp_path)!r})"
    root = target or str(tmp_path)
    tries = ["open('sub/deep/env/bin/new', 'w')", "os.rename('sub', 'x')", "os.rename('sub/deep', 'sub/x')"]
    code = (
        f"import os\nos.chdir({root!r})\nopen('sub/deep/fine', 'w')\nfor each in {tries!r}:\n"
        "    try: exec(each); print('done', each)\n    except OSError: pass"
    )
    done = own_python(environment, f"SandboxPolicy.preset('standard'){give}", code)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "sub" / "deep" / "fine").exists()


def own_python(environment: Path, policy: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a sandbox of a process whose interpreter is that of an environment."""
    given = f"from sandbox_kernel import *\nwith Sandbox({policy}) as box: r = box.run({code!r}); print(end=r.stdout + r.stderr)"
    env = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    start = [str(environment / "bin" / "python"), "-P", "-c", given]
    return subprocess.run(start, env=env, cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("linked", ["environment", "interpreter"])
@pytest.mark.one_case
def test_an_environment_that_is_reached_by_a_link_in_a_writable_grant_is_refused(tmp_path: Path, linked: str) -> None:
    (tmp_path / "project").mkdir()
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, cwd="/")
    if linked == "environment":
        (tmp_path / "project" / "env").symlink_to("../env")
        environment = tmp_path / "project" / "env"
    else:
        (tmp_path / "project" / "python").symlink_to(os.path.realpath(sys.executable))
        (environment / "bin" / "python").unlink()
        (environment / "bin" / "python").symlink_to(tmp_path / "project" / "python")
    policy = f"SandboxPolicy().mount({str(tmp_path / 'project')!r}, '/work', True)"
    done = own_python(environment, policy, "print('it ran')")
    assert "it ran" not in done.stdout
    assert "could exchange" in done.stderr
    done = own_python(environment, policy.replace("True", "False"), "print('it ran')")
    assert done.stdout == "it ran\n"


@pytest.mark.parametrize("way", ["folder", "link", "file"])
def test_no_program_that_sandboxed_code_may_have_made_is_run_on_the_host(place: Path, way: str) -> None:
    """An interpreter, a compiler and Node.js are asked for their version outside of every sandbox."""
    project, ran = place / "project", place / "ran"
    program = place / "bin" / "python" if way == "link" else project / "a" / "bin" / "python"
    planted = project / "planted" if way == "link" else program
    program.parent.mkdir(exist_ok=True)
    planted.write_text(f"#!/bin/sh\ntouch {ran}\n")
    planted.chmod(0o755)
    if way == "link":
        program.symlink_to(planted)
    assert GivenGrants(SandboxPolicy().allow_read_write(planted if way == "file" else project)).now()
    name = str(program)
    asks: list[Callable[[], object]] = [
        lambda: find_python(name), lambda: find_node(name), lambda: find_rustc(name),
        lambda: find_compiler(name, ("cc",), "cc"), lambda: find_program((name,), ("--version",), ""),
        lambda: needed_files([name], {}, ""), lambda: needed_files([str(program.parent / "R")], {}, ""),
    ]  # fmt: skip
    (program.parent / "R").write_bytes(b"")
    (program.parent / "R").chmod(0o755)
    (program.parent / "Rscript").symlink_to(program.name)
    for ask in asks:
        with pytest.raises(BackendUnavailable, match="not run on the host"):
            ask()
    assert not ran.exists()


def test_a_bubblewrap_that_sandboxed_code_may_have_made_is_not_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "project" / "bwrap").write_text(f"#!/bin/sh\ntouch {place}/ran\n")
    (place / "project" / "bwrap").chmod(0o755)
    assert GivenGrants(SandboxPolicy().allow_read_write(place / "project")).now()
    monkeypatch.setenv("PATH", f"{place}/project:{os.environ['PATH']}")
    with pytest.raises(EnforcerUnavailable, match="not run on the host"):
        find_bwrap.__wrapped__()


@pytest.mark.parametrize("name", ["b.toml", "link.toml", "folder/b.toml"])
def test_a_policy_file_that_programs_of_another_policy_could_change_is_refused(place: Path, name: str) -> None:
    project = place / "project"
    for folder in (place, project):
        (folder / "b.toml").write_text("allowProcessSpawn = true\n")
    (project / "link.toml").symlink_to(place / "b.toml")
    (project / "folder").symlink_to(place)
    assert SandboxPolicy.load(project / name)
    assert GivenGrants(SandboxPolicy().allow_read_write(project)).now()
    with pytest.raises(PolicyViolation, match="not obeyed"):
        SandboxPolicy.load(project / name)
    assert SandboxPolicy.load(place / "b.toml")


def test_a_link_to_a_policy_file_is_refused_where_the_policy_lets_programs_exchange_it(place: Path) -> None:
    project = place / "project"
    (place / "p.toml").write_text(f'[[mounts]]\nhost = "{project}"\nguest = "/work"\nwritable = true\n')
    (project / "p.toml").symlink_to(place / "p.toml")
    with pytest.raises(PolicyViolation, match="not obeyed"):
        SandboxPolicy.load(project / "p.toml")


def test_a_policy_file_is_refused_where_the_mounts_beside_it_let_programs_write_to_it(place: Path) -> None:
    (place / "project" / "p.toml").write_text("allowProcessSpawn = true\n")
    mount = f"--mount={place / 'project'}:/work:rw"
    with pytest.raises(PolicyViolation, match="not obeyed"):
        policy_of(parse_options([f"--policy={place / 'project' / 'p.toml'}", mount]))


@pytest.mark.parametrize(("name", "text"), [
    ("p.toml", '[[mounts]]\nhost = "{project}"\nguest = "/work"\nwritable = true\n'),
    ("p.json", '{{"allowedPaths": [{{"path": "{project}", "mode": "readWrite"}}]}}'),
])  # fmt: skip
def test_a_policy_file_that_its_programs_could_change_is_refused(place: Path, name: str, text: str) -> None:
    project = place / "project"
    for folder in (place, project / "a"):
        (folder / name).write_text(text.format(project=project))
    assert SandboxPolicy.load(place / name)
    with pytest.raises(PolicyViolation, match="keep it elsewhere"):
        SandboxPolicy.load(project / "a" / name)
    (project / "plain.toml").write_text("allowProcessSpawn = true\n")
    assert policy_of(parse_options([f"--policy={project}/plain.toml", f"--mount={project}:/work"]))
    with pytest.raises(PolicyViolation, match="keep it elsewhere"):
        policy_of(parse_options([f"--policy={project}/plain.toml", f"--mount={project}:/work:rw"]))


def test_a_link_that_a_program_planted_leads_no_copy_or_log_elsewhere(place: Path) -> None:
    project, patch = place / "project", place / "patch"
    patch.write_text("mine")
    (project / "out").symlink_to(place / "secret")
    (project / "changes.patch").symlink_to(patch)
    assert GivenGrants(SandboxPolicy().allow_read_write(project)).now()
    with Sandbox() as box, pytest.raises(PolicyViolation, match="programs may write to"):
        box.copy_in(project / "out", "key")
    with pytest.raises(PolicyViolation, match="programs may write to"):
        AuditFile(project / "out" / "log")
    code = [
        sys.executable,
        "-P",
        "-m",
        "sandbox_kernel",
        "run",
        f"--here={place / 'project' / 'a'}",
        "-c",
        "open('x', 'w')",
    ]
    done = subprocess.run(
        [*code, "--diff", str(project / "changes.patch")], capture_output=True, text=True, check=False
    )
    assert "name a file that is no link" in done.stderr
    assert patch.read_text() == "mine"


@pytest.mark.parametrize("leads_to", ["/oldroot{secret}", "{secret}"])
@pytest.mark.parametrize("writable", [True, False])
def test_no_place_is_made_through_a_link_in_a_grant(place: Path, leads_to: str, writable: bool) -> None:
    policy = SandboxPolicy().mount(place / "project", "/work", writable).mount(place / "secret", "/work/new/x")
    (place / "project" / "new").symlink_to(leads_to.format(secret=place / "secret"))
    # Another sandbox could write there before.
    assert GivenGrants(SandboxPolicy().allow_read_write(place / "project")).now()
    with Sandbox(policy) as box, pytest.raises(PolicyViolation, match="is a link there"):
        box.run("print(1)")


def test_a_link_of_the_user_is_on_the_way_to_a_place_in_a_grant(tmp_path: Path) -> None:
    for name in ("top/v1/data", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "top/current").symlink_to("v1")
    (tmp_path / "other/x").write_text("1")
    policy = SandboxPolicy().mount(tmp_path / "top", "/proj").mount(tmp_path / "other", "/proj/current/data")
    with Sandbox(policy) as box:
        assert box.run("print(open('/proj/v1/data/x').read())").stdout == "1\n"


@pytest.mark.parametrize("enforcer", ["bubblewrap", "landlock"])
@pytest.mark.one_case
def test_a_program_cannot_keep_others_from_opening_what_it_may_read(place: Path, enforcer: str) -> None:
    file = place / "project" / "plain"
    file.write_text("1")
    target = str(place / "project") if enforcer == "landlock" else "/data"
    code = (
        f"import fcntl, os\nfd = os.open('{target}/plain', os.O_RDONLY)\n"
        "for command in (1024, 1026, 1044):\n    try: print('done', fcntl.fcntl(fd, command, fcntl.F_RDLCK))\n"
        "    except OSError: pass\nprint(fcntl.fcntl(fd, fcntl.F_GETFD))"
    )
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer, SandboxPolicy().mount(place / "project", target))
    result = backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=20))
    assert result.stdout == "1\n", result.stderr


def test_our_state_and_caches_are_read_only_in_a_writable_grant(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(place / "project" / name))
    monkeypatch.setenv("SANDBOX_KERNEL_CACHE", str(place / "project" / "OWN" / "sandbox-kernel"))
    code = (
        "import os\nfor name in ('XDG_STATE_HOME', 'XDG_CACHE_HOME', 'OWN'):\n"
        "    for act in (lambda: open(f'/work/{name}/sandbox-kernel/new', 'w'), lambda: os.rename(f'/work/{name}', '/work/x')):\n"
        "        try: print('done', act())\n        except OSError: pass\n"
    )
    with Sandbox(SandboxPolicy().mount(place / "project", "/work", True)) as box:
        result = box.run(code)
    assert (result.stdout, result.stderr) == ("", "")
    with pytest.raises(PolicyViolation, match="cannot be given writable"):
        GivenGrants(SandboxPolicy().allow_read_write(place / "project" / "XDG_STATE_HOME" / "sandbox-kernel")).now()


def test_a_session_says_that_a_granted_file_was_replaced(place: Path) -> None:
    notes = place / "project" / "notes.txt"
    with Sandbox(SandboxPolicy().mount(notes, "/notes")) as box, box.session() as session:
        assert session.run("print(open('/notes').read())").ok
        (place / "aside").write_text("new")
        (place / "aside").replace(notes)
        with pytest.raises(PolicyViolation, match="give the policy again"):
            session.restart()
            session.run("1")


def test_a_running_session_is_not_given_a_writable_folder_with_our_state(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "project" / "state"))
    policy = SandboxPolicy().mount(place / "project" / "data", "/data")
    with Sandbox(policy) as box, box.session() as session:
        assert session.run("1").ok
        with pytest.raises(PolicyViolation, match="cannot be given writable to a running session"):
            session.allow(mount=f"{place / 'project'}:/mnt/late:rw")
