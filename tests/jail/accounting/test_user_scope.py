"""A scope of our own from the user's service manager: a real systemd where it can run, a stand-in on a real bus elsewhere."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting.cgroups import ScopeRefused, bus_address, enter_scope, may_ask
from tests.jail.accounting.control_groups import (
    Host,
    has_controllers,
    members,
    needs_controllers,
    needs_v2,
    new_group,
    remove,
)
from tests.jail.accounting.test_cgroup_place import BOTH, LIMITED_CHILD, NOBODY, child_of, give

pytest.importorskip("jeepney", reason="jeepney, which speaks to the bus, is not installed")

needs_bus = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
SYSTEMD = "/lib/systemd/systemd"
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("group", "uid", "asked"),
    [
        ("/user.slice/user-1000.slice/session-3.scope", 1000, True),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", 1000, True),
        ("/user.slice/user-1000.slice/session-3.scope", 0, False),
        ("/user.slice/user-0.slice/session-3.scope", 0, False),
        ("/user.slice/user-100.slice/session-3.scope", 1000, False),
        ("/system.slice/jupyter.service", 1000, False),
        ("/docker/abc", 1000, False),
        ("", 1000, False),
    ],
)
def test_only_an_ordinary_user_in_a_login_asks(group: str, uid: int, asked: bool) -> None:
    assert may_ask(group, uid) is asked


def test_the_bus_is_where_the_session_says_or_where_systemd_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/there")
    assert bus_address(7) == "unix:path=/there"
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/mine")
    assert bus_address(7) == "unix:path=/run/mine/bus"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert bus_address(7) == "unix:path=/run/user/7/bus"


def test_without_the_library_or_a_bus_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/missing")
    with pytest.raises(ScopeRefused, match="No such file"):
        enter_scope()
    monkeypatch.setitem(sys.modules, "jeepney", None)
    with pytest.raises(ScopeRefused, match="jeepney"):
        enter_scope()


def test_a_bus_that_takes_connections_and_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{tmp_path}/bus")
        mute.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
        with pytest.raises(ScopeRefused, match=r"no answer within 0\.2 s"):
            enter_scope(0.2)


@contextlib.contextmanager
def bus() -> Iterator[str]:
    """A bus of the test's own that any user may connect to."""
    name = f"unix:abstract=sandbox-kernel-test-{secrets.token_hex(8)}"
    config = (
        '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" '
        '"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd"><busconfig><type>session</type>'
        f"<listen>{name}</listen><auth>EXTERNAL</auth><policy context='default'><allow user='*'/><allow own='*'/>"
        "<allow send_type='method_call'/><allow send_type='signal'/><allow send_destination='*'/>"
        "<allow receive_type='signal'/><allow eavesdrop='true'/></policy></busconfig>"
    )
    read, write = os.pipe()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(config)
        file.flush()
        daemon = subprocess.Popen(
            ["dbus-daemon", f"--config-file={file.name}", "--nofork", f"--print-address={write}"], pass_fds=[write]
        )
        os.close(write)
        with open(read) as told:
            started = told.readline()
    try:
        assert started, "the bus did not start"
        yield name
    finally:
        daemon.kill()
        daemon.wait()


@contextlib.contextmanager
def manager(address: str, mode: str, slice_: Path, uid: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "stand_in_manager.py"), mode, str(slice_), str(uid)],
        env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": address}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()


def asked(host: Host, address: str, timeout_s: float = 20.0) -> str | None:
    """Let a host ask; what it was refused with."""
    found = host.ask(
        f"os.environ['DBUS_SESSION_BUS_ADDRESS'] = {address!r}\n"
        f"try:\n    answer = cgroups.enter_scope({timeout_s})\n"
        "except cgroups.ScopeRefused as error:\n    answer = str(error)"
    )
    assert found is None or isinstance(found, str)
    return found


@needs_v2
@needs_bus
@pytest.mark.parametrize(
    ("mode", "word", "timeout_s"),
    [
        ("work", None, 20),
        ("refuse", "AccessDenied", 20),
        ("fail", "was not started: failed", 20),
        ("stay", "did not move this process", 20),
        ("silent", "no answer within 0.5 s", 0.5),
    ],
)
@pytest.mark.one_case
def test_the_manager_moves_this_process_or_the_reason_is_told(mode: str, word: str | None, timeout_s: float) -> None:
    with new_group() as group, bus() as address, manager(address, mode, group, os.geteuid()):
        host = Host(child_of(group, "session"))
        try:
            refused = asked(host, address, timeout_s)
            scopes = [path for path in group.iterdir() if path.name.endswith(".scope")]
            if word is None:
                assert refused is None
                assert [members(scope) for scope in scopes] == [[host.pid]]
            else:
                assert refused is not None and word in refused
                assert not scopes and members(group / "session") == [host.pid]
        finally:
            host.kill()


@needs_bus
def test_a_bus_without_a_manager_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with bus() as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        with pytest.raises(ScopeRefused, match="ServiceUnknown"):
            enter_scope(20)


@needs_controllers
@needs_bus
def test_an_ordinary_user_in_a_login_session_gets_limits_from_the_manager() -> None:
    with new_group() as group:
        (group / "cgroup.subtree_control").write_text(BOTH)
        slice_ = child_of(group, f"user-{NOBODY}.slice")
        (slice_ / "cgroup.subtree_control").write_text(BOTH)
        app = child_of(slice_, "app.slice")
        (app / "cgroup.subtree_control").write_text(BOTH)
        give(app, NOBODY)
        session = child_of(slice_, "session-1.scope")
        with bus() as address, manager(address, "work", app, NOBODY):
            shell, host = Host(session, uid=NOBODY), Host(session, uid=NOBODY)
            try:
                host.ask(f"os.environ['DBUS_SESSION_BUS_ADDRESS'] = {address!r}")
                place = host.place()
                assert place is not None and Path(place).parents[1] == app
                assert host.ask(LIMITED_CHILD) == [-9, 1, True]
                assert members(session) == [shell.pid], "somebody else was moved"
            finally:
                shell.kill()
                host.kill()


@needs_v2
@needs_bus
@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists(SYSTEMD), reason="needs root and an installed systemd")
def test_a_real_systemd_of_a_user_moves_this_process_into_a_delegated_scope(tmp_path: Path) -> None:
    """In a mount namespace of its own, where /run says that systemd runs, which it looks for."""
    home = Path("/run") / f"sandbox-kernel-test-{secrets.token_hex(4)}"
    named = Path("/sys/fs/cgroup/systemd")
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(new_group())]
        if named.is_dir():  # beside version 1 it keeps its groups here as well
            groups.append(named / groups[0].name)
            groups[1].mkdir()
            stack.callback(remove, groups[1])
        for group in groups:
            give_all(group)
        script = f"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system {home}
chown {NOBODY} {home}
chmod 700 {home}
for group in {" ".join(map(str, groups))}; do echo $$ > $group/cgroup.procs; done
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env -i HOME={home} XDG_RUNTIME_DIR={home} PATH=/usr/bin:/bin \
  DBUS_SESSION_BUS_ADDRESS=unix:path={home}/bus bash -c '
dbus-daemon --session --address=unix:path={home}/bus --nofork --nopidfile >/dev/null 2>&1 &
{SYSTEMD} --user --unit=basic.target >{home}/log 2>&1 &
cat'
"""
        machine = subprocess.Popen(["unshare", "-m", "bash", "-c", script], stdin=subprocess.PIPE)
        try:
            root = f"/proc/{machine.pid}/root"
            deadline = time.monotonic() + 60
            while not os.path.exists(f"{root}{home}/systemd/private"):
                assert time.monotonic() < deadline and machine.poll() is None, "systemd did not start"
                time.sleep(0.02)
            host = Host(groups[0] / "init.scope", uid=NOBODY)
            try:
                if len(groups) > 1:
                    (groups[1] / "init.scope" / "cgroup.procs").write_text(str(host.pid))
                # Abstract names are of the network namespace, paths of the mount namespace: it is reached through /proc.
                os.chmod(tmp_path, 0o755)
                assert asked(host, f"unix:path={root}{home}/bus", 60) is None
                assert host.group().endswith(".scope") and "sandbox-kernel-" in host.group()
                scope = groups[0].parent / host.group().lstrip("/")
                assert scope.stat().st_uid == NOBODY
                if has_controllers():
                    assert os.path.dirname(str(host.place())) == str(scope)
                    assert host.ask(LIMITED_CHILD) == [-9, 1, True]
            finally:
                host.kill()
        finally:
            for group in groups[:1]:
                (group / "cgroup.kill").write_text("1")
            machine.wait(30)


def give_all(group: Path) -> None:
    for path in (group, *group.iterdir()):
        os.chown(path, NOBODY, NOBODY)
