"""What a session of the light Python promises behind each enforcer; ``tests/as_ordinary_user.sh`` runs it as a user too."""

import socket
from pathlib import Path

import pytest

from sandbox_kernel import SandboxPolicy
from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.model import ExecRequest, Language, Status
from sandbox_kernel.session.open_wasm import load_wasm_session, open_wasm_session
from tests.conftest import need
from tests.session.test_light_python import LightBackend, interrupted, value
from tests.session.test_pip_in_wasm import put_wheel

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("enforcer", ["bubblewrap", "landlock"])
@pytest.mark.slow
def test_state_files_packages_interrupts_forks_and_saves_work(enforcer: str, tmp_path: Path) -> None:
    try:
        get_enforcer(enforcer)
    except EnforcerUnavailable as error:
        need(None, str(error))
    (tmp_path / "secret").mkdir(mode=0o700)
    (tmp_path / "secret" / "key").write_text("secret")
    (tmp_path / "wheelhouse").mkdir()
    put_wheel(tmp_path / "wheelhouse", "low-1.0-py3-none-any.whl", {"low/__init__.py": "", "low/data.txt": "by path"})
    house = str(tmp_path / "wheelhouse")
    # At its own place: landlock cannot mount.
    policy = SandboxPolicy().allow_read(house)
    backend = LightBackend(policy, enforcer=enforcer)
    fresh = backend.run(ExecRequest(language=Language.PYTHON, code="print(6 * 7)", timeout=60))
    assert (fresh.stdout, fresh.isolation) == ("42\n", "wasm"), fresh.stderr
    with open_wasm_session(backend, "python") as session:
        session.run("x = [1]; open('f', 'w').write('kept')")
        installed = session.run(f"%pip install --no-index -f {house} low", timeout=120)
        assert installed.status is Status.OK, installed.stderr
        session.run("x.append(2)")
        session.undo()
        look = "import low, os; x, open('f').read(), open(os.path.join(low.__path__[0], 'data.txt')).read()"
        assert value(session.run(look)) == "([1], 'kept', 'by path')"
        for path in (tmp_path / "secret" / "key", "/etc/passwd", f"{house}/../secret/key"):
            assert session.run(f"open({str(path)!r})").error is not None
        assert session.run(f"open('{house}/new', 'w')").error is not None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            assert session.run(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)").error is not None
        stopped = interrupted(session, "x.append(3)\nprint('go', flush=True)\nwhile True: pass")
        assert (stopped.status, stopped.rolled_back) == (Status.INTERRUPTED, True), stopped.stderr
        with session.fork() as other:
            other.run("x.append(4)")
            assert (value(other.run("x")), value(session.run("x"))) == ("[1, 4]", "[1]")
        session.save(tmp_path / "saved")
    with load_wasm_session(backend, tmp_path / "saved") as again:
        assert value(again.run(look)) == "([1], 'kept', 'by path')"
