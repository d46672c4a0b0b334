"""A wrapped ipykernel behind Landlock, where there is no network of its own: unix sockets, and nothing to connect to."""

import os
import socket
from types import SimpleNamespace

import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.errors import EnforcerFailed, EnforcerUnavailable
from sandbox_kernel.guest.scripts import run_kernel
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.jail.walls import LANDLOCK, Places
from sandbox_kernel.wrapped import inner_kernel
from sandbox_kernel.wrapped.inner_kernel import WayOut
from tests.wrapped.conftest import WrappedClient


@pytest.fixture(scope="module", autouse=True)
def has_landlock():
    try:
        get_enforcer("landlock")
    except EnforcerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def walled(spec):
    client = WrappedClient(spec("behind-landlock", provisioned={"enforcer": "landlock"}))
    yield client
    client.close()


@pytest.mark.slow
def test_cells_run_with_packages_state_interrupts_and_questions(walled):
    assert walled.text("import numpy; x = numpy.arange(3).sum(); print(x)") == "3\n"
    request = walled.kc.execute("print('begun', flush=True)\nwhile True: pass")
    walled.wait_for_output(request, "begun")
    walled.km.interrupt_kernel()
    assert walled.reply(request)["ename"] == "KeyboardInterrupt"
    request = walled.kc.execute("print('got', input('name? '), x)", allow_stdin=True)
    assert walled.kc.get_stdin_msg(timeout=30)["content"]["prompt"] == "sandbox asks: name?"
    walled.kc.input("me")
    assert ("stream", {"name": "stdout", "text": "got me 3\n"}) in walled.outputs(request)
    walled.reply(request)


def test_temporary_files_are_not_made_in_the_work_folder(walled):
    paths = walled.text(
        "import os, tempfile\nprint(tempfile.gettempdir())\nprint(os.path.dirname(os.environ['IPYTHONDIR']))"
    )
    used, own = paths.split()
    assert used == own


def test_no_network_no_unix_socket_of_the_host_and_no_home_folder(walled, tmp_path):
    heard = tmp_path / "host.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.create_server(("127.0.0.1", 0)) as server:
        listener.bind(str(heard))
        os.chmod(heard, 0o777)
        listener.listen()
        tried = f"""
import socket, os
def attempt(act):
    try:
        return act()
    except OSError as error:
        return type(error).__name__
print(attempt(lambda: socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))))
print(attempt(lambda: socket.socket(socket.AF_UNIX).connect({str(heard)!r})))
print(attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
print(attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)))
print(attempt(lambda: os.listdir({os.path.expanduser("~")!r})))
print(attempt(lambda: open({walled.km.connection_file!r}).read()))
"""
        assert walled.text(tried).splitlines() == ["OSError", *["PermissionError"] * 5]


@pytest.mark.slow
def test_a_kernel_that_needs_too_much_memory_is_ended_and_says_so(spec, start):
    kernel = start(spec("small-behind-landlock", provisioned={"enforcer": "landlock", "memory": "256M"}))
    reply, _ = kernel.run("x = bytearray(1 << 30); x[::4096] = b'x' * len(x[::4096])")
    assert reply["ename"] in ("MemoryError", "MemoryExceeded")


@pytest.mark.slow
def test_the_notebooks_folder_is_a_private_copy_and_changes_are_applied(spec, start, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    (project / "below").mkdir(parents=True)
    (project / "below" / "data.txt").write_text("data")
    monkeypatch.chdir(project)
    kernel = start(spec("here-behind-landlock", provisioned={"enforcer": "landlock", "here": "."}))
    _, outputs = kernel.run("print(open('below/data.txt').read()); open('made.txt', 'w').write('made'); None")
    said = "".join(content["text"] for kind, content in outputs if kind == "stream")
    assert "it worked on a private copy of the folder" in said
    assert "data\n" in said
    assert "made.txt (created)" in said
    assert main(["changes", "--apply"]) == 0
    assert (project / "made.txt").read_text() == "made"
    capsys.readouterr()


@pytest.mark.slow
def test_single_domains_are_refused_and_the_cell_says_why(spec, start):
    given = {"enforcer": "landlock", "domains": ["example.org"]}
    reply, outputs = start(spec("domains-behind-landlock", provisioned=given)).run("1")
    assert reply["ename"] == outputs[-1][1]["ename"] == "KernelDidNotStart"
    assert "allow_domain('example.org'), which the enforcer 'landlock' cannot enforce" in reply["evalue"]


# The host connects to paths that hostile programs may have made.


def test_the_program_inside_and_the_host_mean_the_same_answers():
    assert (run_kernel.YES, run_kernel.NO) == (inner_kernel._YES, inner_kernel._NO)


@pytest.fixture
def jail(tmp_path):
    """The folder for temporary files of a jail, our end of its channel, and the way out."""
    inside, outside = socket.socketpair()
    inner = tmp_path / "tmp"
    inner.mkdir()
    walls = SimpleNamespace(enforcer=LANDLOCK)
    way_out = WayOut(SimpleNamespace(channel=outside, uid=None, places=Places(tmp=str(inner)), walls=walls))
    yield inner, inside, way_out
    inside.close()
    outside.close()
    for _ in range(2):
        way_out.close()
    assert way_out._folder == -1


def listener(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


def test_a_socket_of_the_kernel_is_connected_and_the_jail_is_told(jail):
    inner, inside, way_out = jail
    with listener(inner / "kernel-5002"):
        inside.send(b"\1")
        channel, sock = way_out.take()
        sock.close()
    assert (channel, inside.recv(9)) == ("iopub", b"y")


@pytest.mark.parametrize("way", ["link", "second name", "not there", "file", "nobody listens"])
def test_what_is_no_socket_of_the_kernel_is_not_connected(jail, tmp_path, way):
    inner, inside, way_out = jail
    offered, hosts = inner / "kernel-5001", tmp_path / "host.sock"
    with listener(hosts) as host:
        host.setblocking(False)
        if way == "link":
            offered.symlink_to(hosts)
        elif way == "second name":
            os.link(hosts, offered)
        elif way == "file":
            offered.write_text("")
        elif way == "nobody listens":
            listener(offered).close()
        inside.send(b"\0")
        assert way_out.take() is None
        assert inside.recv(9) == b"n"
        with pytest.raises(BlockingIOError):
            host.accept()


def test_anything_else_ends_the_kernel(jail):
    _, inside, way_out = jail
    inside.send(b"\x09")
    with pytest.raises(EnforcerFailed, match="no connection to its kernel"):
        way_out.take()
