"""Which variables of a Python session are saved, and what else of its process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.session.opening.python_state import PythonSession


@pytest.fixture
def session() -> Iterator[PythonSession]:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as box:
        made = box.session()
        assert isinstance(made, PythonSession)
        yield made


def run(session: PythonSession, code: str) -> str:
    result = session.run(code)
    assert result.ok, result.stderr
    return result.stdout


def test_names_that_begin_with_an_underscore_are_saved(session: PythonSession) -> None:
    run(session, "_cache = {1: 2}\ndef _helper(): return _cache[1]\ndef main(): return _helper()")
    run(session, "1 + 1")
    run(session, "_lock = __import__('threading').Lock()")
    with session.fork() as other:
        assert run(other, "print(main())") == "2\n"
        assert sorted(other.restored.stored) == ["_cache", "_helper", "main"], "and nothing of IPython's"
        assert list(other.restored.lost) == ["_lock"]


def test_after_a_change_of_directory_modules_of_the_work_folder_are_saved(session: PythonSession) -> None:
    run(session, "import os; open('mine.py', 'w').write('class M: pass'); os.mkdir('sub'); open('sub/f', 'w').close()")
    run(session, "import mine; m = mine.M(); os.chdir('sub')")
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        assert run(other, "print(os.path.relpath(os.getcwd(), '..'), type(m) is mine.M)") == "sub True\n"
    run(session, "os.chdir('/')")
    with session.fork() as other:
        assert run(other, "print(os.getcwd(), type(m) is mine.M)") == "/ True\n", "a directory outside is kept too"


def test_a_long_chain_of_objects_is_saved(session: PythonSession) -> None:
    run(
        session, "class Link: pass\nchain = None\nfor number in range(3000):\n    x = Link(); x.next = chain; chain = x"
    )
    run(session, "endless = []\nfor number in range(200_000): endless = [endless]")
    with session.fork() as other:
        assert list(other.restored.lost) == ["endless"]
        assert run(other, "count = 0\nwhile chain: chain = chain.next; count += 1\nprint(count)") == "3000\n"
