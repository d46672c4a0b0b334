"""Runs on a real cluster: a scheduler and a worker in a process of its own on this machine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_kernel import BackendUnavailable, ExecRequest, InvalidRequest, Language, Sandbox, Status
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.dask import dask_backend
from sandbox_kernel.backends.dask import dask_backend as ours
from sandbox_kernel.backends.dask.dask_backend import DaskBackend
from sandbox_kernel.jail.streams import Stop
from tests.conftest import need
from tests.workspace.overlay.conftest import project as project

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    need(distributed, "the package distributed is not installed: pip install distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        with distributed.Client(cluster) as connected:
            yield connected


@pytest.fixture
def backend(client: object) -> DaskBackend:
    return DaskBackend(client)


def python(code: str, timeout: float = 30) -> ExecRequest:
    return ExecRequest(language=Language.PYTHON, code=code, timeout=timeout)


@pytest.mark.slow
def test_a_run_lands_behind_the_walls_of_a_worker(backend: DaskBackend) -> None:
    result = backend.run(python("import os; print(os.listdir('/home'), os.getuid())"))
    assert (result.status, result.stdout) == (Status.OK, "[] 1000\n")
    assert (result.backend, result.isolation) == ("dask", "process+sandbox")


def test_output_arrives_whole_and_in_order_while_it_runs(backend: DaskBackend) -> None:
    heard: list[tuple[str, str]] = []
    result = backend.run(
        python("import sys\nfor i in range(500): print(i)\nprint('late', file=sys.stderr)"),
        RunContext(on_output=lambda stream, text: heard.append((stream, text))),
    )
    assert result.ok
    assert "".join(text for stream, text in heard if stream == "stdout") == result.stdout
    assert "".join(text for stream, text in heard if stream == "stderr") == "late\n"


def test_an_open_file_travels_with_the_request(backend: DaskBackend, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    with (tmp_path / "in").open("rb") as file:
        result = backend.run(
            python("import sys; print(sys.stdin.read().split())"), RunContext(stdin_from=file.fileno())
        )
    assert result.stdout == "['one', 'two']\n"


def test_a_run_is_stopped_from_here(backend: DaskBackend) -> None:
    async def play() -> Status:
        cancel = asyncio.Event()
        code = "import os, time; os.write(1, b'on'); time.sleep(60)"
        result = await backend.execute(python(code, 90), on_output=lambda *_: cancel.set(), cancel=cancel)
        return result.status

    assert asyncio.run(play()) is Status.INTERRUPTED


def test_a_run_that_was_stopped_before_it_began_is_stopped_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "get_worker", lambda: SimpleNamespace(log_event=lambda *_: None))
    assert not ours.stop_on_worker("later")
    setup, request = ours.ProcessSetup(*_setup()), python("import time; time.sleep(60)")
    delivery = ours.run_on_worker(setup, request, "later", False, False)
    assert delivery.result.status is Status.INTERRUPTED
    assert not dask_backend._running and "later" not in dask_backend._stopped


def _setup() -> tuple[object, object, object]:
    from sandbox_kernel import ProcessConfig, SandboxPolicy

    return ProcessConfig(pool_size=0), SandboxPolicy.preset("standard"), "auto"


@pytest.mark.slow
def test_a_limit_is_told_as_anywhere(backend: DaskBackend) -> None:
    result = backend.run(python("while True: pass", timeout=1))
    assert (result.status, result.limit) == (Status.TIMEOUT, "timeout")


def test_errors_of_ours_come_through_and_those_of_the_cluster_are_explained(client: object) -> None:
    from sandbox_kernel import ProcessConfig

    missing = DaskBackend(client, ProcessConfig(python_path="/no/such/python"))
    with pytest.raises((InvalidRequest, BackendUnavailable), match="/no/such/python"):
        missing.run(python("1"))


@pytest.mark.slow
def test_a_worker_that_died_is_told(client: object) -> None:
    """The scheduler gives such a run to another worker; when there is none left, that is an error and no result."""
    with distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        with distributed.Client(cluster, set_as_default=False) as own:
            own.submit(lambda: None).result()
            cluster.scheduler.allowed_failures = 0
            backend = DaskBackend(own)

            def kill(*_: object) -> None:
                for nanny in cluster.workers.values():
                    nanny.process.process.kill()

            with pytest.raises(BackendUnavailable, match="did not finish the run"):
                backend.run(python("import os, time; os.write(1, b'on'); time.sleep(60)"), RunContext(on_output=kill))


@pytest.mark.slow
def test_capabilities_are_those_of_a_worker(backend: DaskBackend) -> None:
    found = backend.capabilities()
    assert found.isolation_class == "process+sandbox"
    assert found.enforced_limits.memory


def test_the_facade_keeps_the_files_of_a_cluster_run(client: object) -> None:
    with Sandbox(backend="dask") as box:
        box.write_file("in.txt", "given")
        made = box.run("import os; os.makedirs('a/b'); open('a/b/c', 'w').write(open('in.txt').read() * 2)")
        assert (made.status, made.backend) == (Status.OK, "dask")
        assert box.read_file("a/b/c") == b"givengiven"
        assert box.run("print(open('a/b/c').read())").stdout == "givengiven\n"
        with pytest.raises(InvalidRequest, match="not on a cluster"):
            box.session()


def test_a_folder_of_the_user_is_refused_with_what_works_instead(client: object, project: Path) -> None:
    with Sandbox(here=project) as box, pytest.raises(InvalidRequest, match="give them files"):
        box.run("1", backend="dask")


def test_without_a_cluster_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "default_client", none)
    with Sandbox() as box, pytest.raises(BackendUnavailable, match=r"no cluster.*DASK_SCHEDULER_ADDRESS"):
        box.run("1", backend="dask")


def _lie(*_: object) -> object:
    return {"stdout": "all is well", "status": "ok"}


def _hang(setup: object, request: object, name: str, *_: object) -> object:
    import threading

    distributed.get_worker().log_event(name, (ours.BEGAN, ""))
    for noise in (None, 5, ("stdout", 5), ("evil", "text"), ("stdout", "a", "b"), [["stdout"]]):
        distributed.get_worker().log_event(name, noise)
    threading.Event().wait(20)
    return b""


@pytest.mark.slow
def test_a_worker_that_answers_something_else_is_told_from_one_that_ran_the_program(
    backend: DaskBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "run_on_worker", _lie)
    monkeypatch.setattr(ours, "measure_on_worker", _lie)
    with pytest.raises(BackendUnavailable, match=r"sent an invalid answer \(a dict\)"):
        backend.run(python("1"))
    with pytest.raises(BackendUnavailable, match="sent an invalid answer"):
        backend.capabilities()


@pytest.mark.slow
def test_a_worker_that_begins_and_never_answers_is_not_waited_for_for_ever(
    backend: DaskBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "run_on_worker", _hang)
    monkeypatch.setattr(ours, "PATIENCE_S", 1.0)
    heard: list[tuple[str, str]] = []
    with pytest.raises(BackendUnavailable, match=r"a worker began it \d+ s ago, its limit is 1 s"):
        backend.run(python("1", timeout=1), RunContext(on_output=lambda stream, text: heard.append((stream, text))))
    assert heard == []


@pytest.mark.slow
def test_a_run_whose_worker_does_not_answer_can_be_stopped(
    backend: DaskBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "run_on_worker", _hang)
    monkeypatch.setattr(ours, "STOP_S", 1.0)
    stop = Stop()
    stop.set()
    result = backend.run(python("1", timeout=600), RunContext(stop=stop))
    stop.close()
    assert (result.status, result.backend) == (Status.INTERRUPTED, "dask")
    assert "did not answer within 1 s" in result.notes[0]
