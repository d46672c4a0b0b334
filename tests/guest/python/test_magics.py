"""``%pip`` in a session: it installs where there is a way out, and says what to allow where there is none."""

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.model import Status
from sandbox_kernel.session.session import Session
from tests.package_index import HOST, PACKAGE, package_index

PATIENCE_S = 240.0


@pytest.mark.parametrize(
    "magic", ["%pip install absent-thing", "%conda install absent-thing", "%uv pip install absent-thing"]
)
def test_without_network_it_is_answered_with_what_to_allow(python: Session, magic: str) -> None:
    result = python.run(magic)
    assert result.status is Status.FAILED
    assert result.error is not None
    assert result.error.ename == "UsageError"
    for part in ("%sandbox install absent-thing", "--python"):
        assert part in result.error.evalue
        assert part in result.stderr


@pytest.mark.slow
def test_what_needs_no_network_works_without(python: Session) -> None:
    result = python.run("%pip --version", PATIENCE_S)
    assert result.ok
    assert result.stdout.startswith("pip "), result.stderr


@pytest.fixture
def online() -> Iterator[tuple[Session, str]]:
    """A session that may reach a package index, and the words that name it."""
    with package_index() as (url, port, _):
        policy = SandboxPolicy.preset("standard").allow_domain(HOST, port)
        with Sandbox(policy, allow_private_for=[HOST], resolver=lambda *_: ["127.0.0.1"]) as box:
            yield box.session("python"), f"--index-url {url}/simple/ --trusted-host {HOST}"


def test_other_installers_point_to_pip(online: tuple[Session, str]) -> None:
    result = online[0].run("%conda install absent-thing")
    assert result.error is not None
    assert "%pip install puts packages into the work folder" in result.error.evalue


@pytest.mark.slow
def test_pip_installs_beside_the_variables_or_into_a_chosen_folder_and_an_undo_takes_it_away(
    online: tuple[Session, str],
) -> None:
    session, words = online
    session.run("kept = 40")
    installed = session.run(f"%pip install {words} {PACKAGE}", PATIENCE_S)
    assert "Successfully installed" in installed.stdout, installed.stderr
    assert session.run(f"import {PACKAGE}; print({PACKAGE}.answer + kept)").stdout == "82\n"
    assert session.run(f"print({PACKAGE}.__file__)").stdout == f"/box/packages/{PACKAGE}/__init__.py\n"
    session.undo(3)
    assert session.run(f"import {PACKAGE}").error is not None
    assert session.run(f"%pip install --target=/box/own {words} {PACKAGE}", PATIENCE_S).ok
    assert session.run("import os; print(os.listdir('/box/own') != [], os.path.exists('/box/packages'))").stdout == (
        "True False\n"
    )
