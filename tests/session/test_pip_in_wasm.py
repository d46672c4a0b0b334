"""``%pip`` in sessions of Python in WebAssembly: from a folder or an index, with what a package needs, undone with a cell.

What wheels and indexes say is hostile; nothing that they do leaves the jail, and everything refused is a typed error.
"""

import io
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.model import Status
from sandbox_kernel.session.open_wasm import WasmSession, load_wasm_session, open_wasm_session
from tests.package_index import HOST, PACKAGE, package_index
from tests.session.test_light_python import LightBackend, value

pytestmark = pytest.mark.timeout(600)
Files = dict[str, str | bytes]
PATIENCE_S = 120


def put_wheel(
    folder: Path, file: str, files: Files, *, needs: tuple[str, ...] = (), info: str | None = None, python: str = ""
) -> None:
    name, version = file.split("-")[:2]
    said = "".join(f"Requires-Dist: {need}\n" for need in needs) + (f"Requires-Python: {python}\n" if python else "")
    said += "Provides-Extra: more\n"
    info = info or f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{said}\nText.\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        for inside, data in files.items():
            archive.writestr(inside, data)


def refusal(session: WasmSession, line: str) -> tuple[str, str]:
    result = session.run(line, timeout=PATIENCE_S)
    assert result.error is not None, result.stdout
    assert "Traceback" not in result.stderr
    return result.error.ename, result.error.evalue


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in ("1.0", "1.5", "2.0", "3.0rc1"):
        put_wheel(tmp_path, f"low-{version}-py3-none-any.whl", {"low.py": f"v = '{version}'"})
    data: Files = {
        "top/__init__.py": "import os, low\ntext = open(os.path.join(os.path.dirname(__file__), 'data', 'a.txt')).read()",
        "top/data/a.txt": "by path",
        "json.py": "raise SystemExit('not the json of Python')",
        "top-1.0.data/scripts/run": "#!python",
        "evil.pth": "import os; os._exit(3)",
    }
    needs = ("low >1,<2", "absent; sys_platform == 'win32'", "extra-thing; extra == 'more'")
    put_wheel(tmp_path, "top-1.0-py2.py3-none-any.whl", data, needs=needs)
    put_wheel(tmp_path, "extra_thing-1.0-py3-none-any.whl", {"extra_thing.py": ""})
    put_wheel(tmp_path, "fast-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", {"fast.so": b"\x7fELF"})
    put_wheel(tmp_path, "needy-1.0-py3-none-any.whl", {"needy.py": ""}, needs=("fast",))
    put_wheel(tmp_path, "torn-1.0-py3-none-any.whl", {"torn.py": ""}, needs=("low<1.2", "low>1.7"))
    for name, needs in {"app-1.0": "low<2", "app-2.0": "low>=3", "mixed-1.0": "low", "mixed-2.0": "fast"}.items():
        put_wheel(tmp_path, f"{name}-py3-none-any.whl", {}, needs=(needs,))
    put_wheel(tmp_path, "modern-1.0-py3-none-any.whl", {"modern.py": ""}, needs=("low; python_version == '3.12'",))
    put_wheel(tmp_path, "modern-2.0-py3-none-any.whl", {"modern.py": ""}, python=">=3.99")
    return tmp_path


@pytest.fixture
def session(folder: Path) -> Iterator[WasmSession]:
    backend: WasmBackend = LightBackend(SandboxPolicy().mount(folder, "/wheelhouse"))
    with open_wasm_session(backend, "python") as opened:
        opened.run("x = 1")
        yield opened


FROM = "--no-index --find-links /wheelhouse"


@pytest.mark.slow
def test_a_package_comes_with_what_it_needs_and_can_be_undone(session: WasmSession) -> None:
    done = session.run(f"if x:\n  %pip install {FROM} top\nimport top, low, json", timeout=PATIENCE_S)
    assert "Successfully installed low-1.5 top-1.0" in done.stdout, done.stderr
    assert "Python's own are imported" in done.stdout
    assert value(
        session.run("low.v, top.text, json.dumps(1), 'evil' in str(__import__('os').listdir('packages'))")
    ) == ("('1.5', 'by path', '1', False)")
    with session.fork() as other:
        assert value(other.run("import importlib.metadata as m; top.text, m.version('top')")) == "('by path', '1.0')"
    again = session.run(f"%pip install {FROM} top[more]", timeout=PATIENCE_S)
    assert "already satisfied: top 1.0" in again.stdout
    newer = session.run(f"%pip install {FROM} -U low", timeout=PATIENCE_S)
    assert "low-2.0" in newer.stdout and "restart the session" in newer.stdout, newer.stderr
    assert session.run("%pip list").stdout == "extra-thing==1.0\nlow==2.0\ntop==1.0\n"
    session.undo()
    session.undo()
    assert (
        session.run("%pip uninstall top\n%pip list").stdout
        == "Successfully uninstalled top-1.0\nextra-thing==1.0\nlow==1.5\n"
    )
    assert value(session.run("text = '''\n%pip install nothing\n'''\nx, text")) == "(1, '\\n%pip install nothing\\n')"
    assert session.is_complete("%pip install six")["status"] == "complete"


TAKEN = {
    "app": "app-1.0 low-1.5",
    "mixed": "low-2.0 mixed-1.0",
    "modern": "low-2.0 modern-1.0",
    "/wheelhouse/low-1.0-py3-none-any.whl": "low-1.0",
    "--pre low": "low-3.0rc1",
    "top[more]": "extra-thing-1.0 low-1.5 top-1.0",
}


@pytest.mark.slow
def test_the_newest_versions_that_fit_each_other_and_this_python_are_taken(session: WasmSession) -> None:
    for names, told in TAKEN.items():
        done = session.run(f"%pip install {FROM} {names}", timeout=PATIENCE_S)
        assert f"Successfully installed {told}\n" in done.stdout, (names, done.stdout, done.stderr)
        session.undo()


REFUSED = [
    (f"install {FROM} fast", "NativePackage", "backend='process'"),
    (f"install {FROM} needy", "NativePackage", "fast-1.0-cp312"),
    (f"install {FROM} torn", "PackageError", "torn 1.0 depends on low<1.2"),
    (f"install {FROM} 'low>9'", "PackageError", "1.0, 1.5, 2.0"),
    (f"install {FROM} nowhere", "PackageError", "nowhere"),
    ("install six", "PackageError", "--allow-net"),
    ("install", "PackageError", "needs the name"),
    ("install 'open", "PackageError", "No closing quotation"),
    ("install -r /etc/passwd", "PackageError", "/etc/passwd"),
    ("install --editable .", "PackageError", "cannot be used here"),
    ("install https://example.org/a.whl", "PackageError", "names an address"),
    ("install 'a @ https://example.org/a.whl'", "PackageError", "names an address"),
    ("install --no-index ?", "PackageError", "Invalid requirement"),
    ("install --no-index /wheelhouse/none-1.0-py3-none-any.whl", "PackageError", "cannot be read"),
    ("install --no-index /wheelhouse/fast-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", "NativePackage", "pure Python"),
    ("install --no-index ./folder", "PackageError", "no package or wheel"),
    ("wheel six", "PackageError", "install, uninstall and list"),
]


@pytest.mark.slow
def test_what_cannot_be_installed_and_hostile_wheels_say_why_and_leave_nothing(
    session: WasmSession, folder: Path
) -> None:
    for line, error, words in REFUSED:
        ename, said = refusal(session, f"%pip {line}")
        assert ename == error and words in said, (line, ename, said)
    for name, words in put_hostile_wheels(folder).items():
        _, said = refusal(session, f"%pip install {FROM} {name}")
        assert words in said, (name, said)
    assert value(session.run("import os; x, os.listdir('.')")) == "(1, [])"


def put_source(folder: Path) -> None:
    """Write a source package that leaves a file in the work folder when it is built."""
    build = "import pathlib\nfor at in ('/box', '.'): pathlib.Path(at, 'owned').touch()\nbuild_wheel = None"
    project = "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n"
    with tarfile.open(folder / "source-1.0.tar.gz", "w:gz") as archive:
        for name, text in {
            "pyproject.toml": project,
            "own.py": build,
            "PKG-INFO": "Name: source\nVersion: 1.0\n",
        }.items():
            entry = tarfile.TarInfo(f"source-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def put_hostile_wheels(folder: Path) -> dict[str, str]:
    """Write hostile wheels; returns words with which each is refused."""
    put_source(folder)
    hostile: dict[str, tuple[Files, tuple[str, ...], str]] = {
        "builder": ({}, ("source @ file:///wheelhouse/source-1.0.tar.gz",), "nothing is built here"),
        "climber": ({"../../climber.py": "x"}, (), "outside the target"),
        "rooted": ({"/rooted.py": "x"}, (), "outside the target"),
        "bomb": ({"bomb.py": bytes(80 << 20)}, (), "64 MB"),
        "crowd": ({f"crowd/{n}.py": "" for n in range(4001)}, (), "4000 files"),
        "native": ({"native.so": b"\x7fELF"}, (), "native code"),
        "garbled": ({"garbled.py": ""}, ("%%%",), "Invalid"),
        "nested": ({}, ("x; " + "(" * 3000 + "os_name=='nt'" + ")" * 3000,), "pip"),
        "twofold": ({"a/b.py": "", "a/b.py/c.py": ""}, (), "pip"),
    }
    for name, (files, needs, _) in hostile.items():
        put_wheel(folder, f"{name}-1.0-py3-none-any.whl", files, needs=needs)
    put_wheel(folder, "liar-1.0-py3-none-any.whl", {"liar.py": ""}, info="other-1.0.dist-info")
    (folder / "torn_zip-1.0-py3-none-any.whl").write_bytes(b"PK not a zip")
    return {name: words for name, (_, _, words) in hostile.items()} | {"liar": "liar", "torn-zip": "torn_zip"}


@pytest.mark.slow
def test_the_index_of_the_host_is_reached_by_the_fetch_rules_and_no_other_place_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with package_index() as (url, port, asked):
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        policy = SandboxPolicy.preset("standard").allow_domain(HOST, port)
        with (
            Sandbox(policy, "wasm", allow_private_for=[HOST], resolver=lambda *_: ["127.0.0.1"]) as box,
            box.session("python") as session,
        ):
            done = session.run(f"%pip install {PACKAGE}\nimport {PACKAGE}", timeout=PATIENCE_S)
            assert done.status is Status.OK, done.stderr
            assert value(session.run(f"{PACKAGE}.answer")) == "42"
            assert any(path.endswith(".whl") for path in asked)
            elsewhere = session.run("%pip install -i http://other.test/simple absent-thing", timeout=PATIENCE_S)
            assert elsewhere.error is not None and elsewhere.error.ename == "PackageError"
            assert elsewhere.violations


@pytest.mark.slow
def test_an_interrupt_ends_pip_while_an_index_lets_it_wait_and_rolls_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as index, ThreadPoolExecutor(1) as aside:
        port = index.getsockname()[1]
        policy = SandboxPolicy.preset("standard").allow_domain(HOST, port)
        with (
            Sandbox(policy, "wasm", allow_private_for=[HOST], resolver=lambda *_: ["127.0.0.1"]) as box,
            box.session("python") as session,
        ):
            session.run("x = 1")

            def interrupt_when_asked() -> socket.socket:
                asked, _ = index.accept()
                session.interrupt()
                return asked

            waiting = aside.submit(interrupt_when_asked)
            stopped = session.run(f"%pip install -i http://{HOST}:{port}/simple low", timeout=PATIENCE_S)
            assert (stopped.status, stopped.rolled_back) == (Status.INTERRUPTED, True), stopped.stderr
            with waiting.result() as asked:
                asked.settimeout(PATIENCE_S)
                while asked.recv(1 << 16):  # ends when pip is gone
                    pass
            assert value(session.run("import os; x, os.listdir('.')")) == "(1, [])"


#: Every module that is looked for in vain is this one: what runs it says so.
RUNS = "import os, sys\nopen(os.path.dirname(os.path.abspath(__file__)) + '/RAN', 'w').write(sys.platform)\n"


def test_pip_runs_no_module_of_the_guest_or_of_a_package(session: WasmSession, folder: Path) -> None:
    put_wheel(folder, "brings-1.0-py3-none-any.whl", {"brings.py": "", "_manylinux.py": RUNS, "usercustomize.py": RUNS})
    setup = (
        "import os, sys\nos.makedirs('/box/mods')\nsys.path.append('/box/mods')\nfor place in ('/box', '/box/mods'):\n"
    )
    setup += f"    for name in ('_manylinux', 'sitecustomize'): open(f'{{place}}/{{name}}.py', 'w').write({RUNS!r})"
    assert session.run(setup, timeout=PATIENCE_S).ok
    for name in ("brings", "low"):
        assert session.run(f"%pip install {FROM} {name}", timeout=PATIENCE_S).ok
    assert value(session.run("[name for _, _, names in os.walk('/box') for name in names if name == 'RAN']")) == "[]"


def test_a_cell_can_await_and_keeps_one_loop(session: WasmSession) -> None:
    session.run("import asyncio\nasync def slow():\n  await asyncio.sleep(0.01); return 7\ntask = None")
    assert value(session.run("task = asyncio.create_task(slow())\nawait slow()")) == "7"
    assert value(session.run("(await task), await asyncio.gather(slow(), slow())")) == "(7, [7, 7])"
    failed = session.run("async def bad(): 1 / 0\nawait bad()")
    assert failed.error is not None and failed.error.ename == "ZeroDivisionError"
    assert "asyncio" not in failed.stderr and "_sandbox" not in failed.stderr
    stopped = session.run("await asyncio.sleep(1000)", timeout=1)
    assert (stopped.status, stopped.rolled_back) == (Status.TIMEOUT, True), stopped.stderr
    assert value(session.run("x, await slow()")) == "(1, 7)"


@pytest.mark.slow
def test_what_was_installed_is_there_after_a_restart_in_another_session_in_a_fork_and_saved(folder: Path) -> None:
    policy = SandboxPolicy().mount(folder, "/wheelhouse")
    with Sandbox(policy, "wasm") as box:
        backend = LightBackend(policy)
        with open_wasm_session(backend, "python", share=box._link()) as session:
            session.run(f"%pip install {FROM} top", timeout=PATIENCE_S)
            session.restart()
            assert value(session.run("import top, low; top.text, low.v")) == "('by path', '1.5')"
            session.run("low.v = 'changed'")
            with session.fork() as other:
                assert value(other.run("import low; low.v")) == "'changed'"
            session.save(folder / "saved")
            with open_wasm_session(backend, "python", share=box._link()) as second:
                assert value(second.run("import low; low.v")) == "'1.5'"
            with load_wasm_session(backend, folder / "saved", share=box._link()) as again:
                assert value(again.run("low.v, top.text")) == "('changed', 'by path')"
