"""Which folders an interpreter shows to a sandbox: all that it needs, and never somebody's home."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import BackendUnavailable, ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail import interpreter
from sandbox_kernel.jail.interpreter import find_python, is_system, outermost, runtime_grants

SYSTEM = "/usr/bin/python3"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    find_python.cache_clear()
    yield
    find_python.cache_clear()


def covers(paths: list[str], path: str) -> bool:
    return is_system(path) or any(path == one or path.startswith(one + "/") for one in paths)


def test_the_shortest_list_covers_all_and_leaves_out_the_system(tmp_path: Path) -> None:
    for name in ("a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    asked = [
        f"{tmp_path}/a/b/c",
        f"{tmp_path}/a",
        f"{tmp_path}/a/b",
        f"{tmp_path}/d/../d",
        "/usr/lib",
        f"{tmp_path}/missing",
    ]
    assert outermost(asked) == [f"{tmp_path}/a", f"{tmp_path}/d"]


def test_home_is_never_granted_nor_anything_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "me"
    (home / ".pyenv" / "versions").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert outermost([str(home), str(home.parent), str(tmp_path), "/"]) == []
    assert outermost([str(home), f"{home}/.pyenv/versions"]) == [f"{home}/.pyenv/versions"]


def test_a_link_is_granted_where_it_is_and_shows_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    grants = {(grant.source, grant.target) for grant in runtime_grants([f"{tmp_path}/link"])}
    real = str((tmp_path / "real").resolve())
    assert (real, f"{tmp_path}/link") in grants
    assert (real, real) in grants
    assert not any(grant.writable for grant in runtime_grants([f"{tmp_path}/link"]))


def test_python_and_python3_mean_the_interpreter_that_runs_this() -> None:
    for name in ("python", "python3", ""):
        found = find_python(name)
        assert os.path.realpath(found.executable) == os.path.realpath(sys.executable)
        assert found.version == sys.version_info[:3]


def test_this_interpreter_is_not_started_to_be_asked_and_the_answer_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = interpreter._ask(sys.executable)
    monkeypatch.setattr(interpreter, "_ask", None)
    assert interpreter._own_facts() == asked
    assert find_python("python3").executable == sys.executable


@pytest.mark.skipif(not os.path.exists(SYSTEM), reason="no system python")
def test_a_program_that_embeds_python_is_asked_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BackendUnavailable, match="/bin/false is not a working Python"):
        find_python("python3")


def test_all_that_this_interpreter_needs_is_shown() -> None:
    shown = [grant.target for grant in find_python("python3").runtime]
    for path in (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), os.__file__):
        assert covers(shown, path), path
    home = os.path.realpath(os.path.expanduser("~"))
    assert not any((home + "/").startswith(path.rstrip("/") + "/") for path in shown)


@pytest.mark.skipif(not os.path.exists(SYSTEM), reason="no system python")
def test_a_system_python_needs_nothing_beyond_the_system() -> None:
    assert find_python(SYSTEM).runtime == ()


@pytest.mark.skipif(not os.path.exists(SYSTEM), reason="no system python")
def test_a_virtual_environment_runs_with_its_own_packages_and_its_links_resolve(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("venv") / "env"
    made = subprocess.run(
        [SYSTEM, "-m", "venv", "--without-pip", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no virtual environment can be made here: {made.stderr.strip()[-200:]}")
    (package,) = folder.glob("lib/python3*/site-packages")
    (package / "only_here.py").write_text("where = __file__")
    for path in (folder, f"{folder}/bin/python"):
        found = find_python(str(path))
        assert found.executable == f"{folder}/bin/python"
        assert covers([grant.target for grant in found.runtime], str(folder))
    backend = ProcessBackend(ProcessConfig(pool_size=0, python_path=str(folder)))
    code = "import only_here, sys; print(only_here.where, sys.prefix)"
    result = backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=30))
    assert result.stdout == f"{package}/only_here.py {folder}\n", result.stderr


@pytest.mark.slow
def test_a_python_that_was_built_for_old_systems_runs_everything() -> None:
    # Conda's has none of these: https://github.com/python-trio/trio/issues/2855
    code = """
import fcntl, os, signal
for module in (fcntl, os, signal):
    for name in dir(module):
        if any(word in name.lower() for word in ("pidfd", "memfd", "mfd_", "seal")):
            delattr(module, name)
from sandbox_kernel import Sandbox
with Sandbox() as box, box.session() as session:
    print(box.run("print(1)").stdout, session.run("2").status, end="")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("1\n ok", 0), done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo oops >&2; exit 3", "python9 is not a working Python interpreter: oops"),
        ('echo \'{"executable": "/x", "version": [2, 7, 18], "paths": []}\'', r"Python 2\.7\.18; 3\.8 or later"),
    ],
)
def test_what_is_no_python_or_too_old_says_so(tmp_path: Path, script: str, said: str) -> None:
    false = tmp_path / "python9"
    false.write_text(f"#!/bin/sh\n{script}\n")
    false.chmod(0o755)
    with pytest.raises(BackendUnavailable, match=said):
        find_python(str(false))


@pytest.mark.parametrize("name", ["/nowhere/python", "python-that-is-not-there", "3.99"])
def test_a_missing_interpreter_is_named_with_what_to_give_instead(name: str) -> None:
    with pytest.raises(BackendUnavailable, match=r"was not found; give a version"):
        find_python(name)


def test_a_shim_answers_with_the_real_interpreter(tmp_path: Path) -> None:
    shim = tmp_path / "shim"
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    shim.chmod(0o755)
    assert find_python(str(shim)).executable == sys.executable


def test_every_link_on_the_way_to_an_executable_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("")
    (tmp_path / "second").symlink_to("real")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    assert interpreter._link_chain(f"{tmp_path}/first") == [
        f"{tmp_path}/{name}" for name in ("first", "second", "real")
    ]
    (tmp_path / "loop").symlink_to("loop")
    assert len(interpreter._link_chain(f"{tmp_path}/loop")) == 20
