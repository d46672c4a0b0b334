"""A notebook and the network: sessions that have it, cells that ask for it beside one that has not, and their files."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ExecResult, ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from sandbox_kernel.notebook.sandboxes import CellIO, NotebookSandboxes
from tests.loopback_server import QuietHandler, serving


class _Hello(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")


class Notebook:
    """Cells one after the other, in sandboxes that resolve every name to loopback and may reach it as allowed.test."""

    def __init__(self, port: int) -> None:
        self.sandboxes = NotebookSandboxes(self._box)
        self.allow = f"--allow-net allowed.test:{port}"
        self.get = f"urllib.request.urlopen('http://allowed.test:{port}/', timeout=20).read().decode()"
        self.defaults = CellOptions()

    @staticmethod
    def _box(policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
        return Sandbox(
            policy, backend, config=config, allow_private_for=["allowed.test"], resolver=lambda *_: ["127.0.0.1"]
        )

    def run(self, text: str) -> ExecResult:
        async def cell() -> ExecResult:
            io = CellIO(on_output=lambda *_: None, cancel=asyncio.Event())
            return (await self.sandboxes.run(parse_cell(text, self.defaults), io))[0]

        return asyncio.run(cell())


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    with serving(_Hello) as port:
        made = Notebook(port)
        yield made
        made.sandboxes.close()


def test_a_session_that_begins_with_a_domain_keeps_its_variables_and_its_way_out(notebook: Notebook) -> None:
    begun = notebook.run(f"%%sandbox --session web {notebook.allow}\nimport urllib.request\npage = {notebook.get}")
    assert begun.ok, begun.stderr
    assert begun.notes == ()
    assert notebook.run(f"%%sandbox --session web\nprint(page, {notebook.get})").stdout == "hello hello\n"
    again = notebook.run(f"%%sandbox --session web {notebook.allow}\nprint(page)")
    assert (again.stdout, again.notes) == ("hello\n", ())


@pytest.mark.slow
def test_its_way_out_outlives_cells_that_are_taken_back(notebook: Notebook) -> None:
    notebook.run(f"%%sandbox --session web {notebook.allow}\nimport urllib.request\npage = {notebook.get}")
    crashed = notebook.run("%%sandbox --session web\npage = 'lost'\nimport os\nos._exit(1)")
    assert crashed.rolled_back
    stopped = notebook.run("%%sandbox --session web --timeout 1s\npage = 'lost'\nwhile True: pass")
    assert stopped.limit == "timeout"
    session = notebook.sandboxes.sessions.find(CellOptions(session="web"))
    assert session is not None
    assert notebook.run("%%sandbox --session web\npage = 'undone'").ok
    session.undo()
    assert notebook.run(f"%%sandbox --session web\nprint(page, {notebook.get})").stdout == "hello hello\n"


@pytest.mark.slow
def test_what_a_session_may_not_reach_is_told_in_the_cell_that_tried(notebook: Notebook) -> None:
    notebook.run(f"%%sandbox --session web {notebook.allow}\nimport urllib.request")
    refused = notebook.run("%%sandbox --session web\nurllib.request.urlopen('http://other.test/')")
    assert [violation.remedy for violation in refused.violations] == ["--allow-net other.test:80"]
    assert notebook.run("%%sandbox --session web\n1").violations == ()


def test_the_same_domains_in_another_order_are_the_same_session(notebook: Notebook) -> None:
    notebook.run(f"%%sandbox --session web {notebook.allow} --allow-net b.test\nx = 1")
    result = notebook.run(f"%%sandbox --session web --allow-net b.test {notebook.allow}\nprint(x)")
    assert (result.stdout, result.notes) == ("1\n", ())


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("%%sandbox", "--session NAME"),
        ("%%sandbox --session web", "%sandbox restart python --session web begins one that has it"),
    ],
)
def test_a_cell_that_asks_beside_its_session_runs_fresh_and_is_told_how_to_keep_variables(
    notebook: Notebook, line: str, way: str
) -> None:
    notebook.run(f"{line}\nmine = 1")
    result = notebook.run(f"{line} {notebook.allow}\nprint('mine' in globals())")
    assert result.stdout == "False\n"
    (note,) = result.notes
    assert way in note
    assert notebook.run(f"{line}\nprint(mine)").stdout == "1\n"
    assert notebook.run(f"%%sandbox {notebook.allow} --session another\nprint(1)").notes == ()


@pytest.mark.slow
def test_the_permission_of_a_named_session_is_not_the_unnamed_ones(notebook: Notebook) -> None:
    notebook.run(f"%%sandbox --session web {notebook.allow}\nimport urllib.request")
    refused = notebook.run(f"import urllib.request\n{notebook.get}")
    assert refused.error is not None
    assert refused.error.ename == "URLError"


def test_what_a_cell_downloads_is_there_for_the_session(notebook: Notebook) -> None:
    notebook.run("mine = 1")
    code = f"import urllib.request\nopen('page.txt', 'w').write({notebook.get})"
    assert notebook.run(f"%%sandbox {notebook.allow}\n{code}").ok
    assert notebook.run("print(open('page.txt').read(), mine)").stdout == "hello 1\n"
    assert notebook.run("%%sandbox bash --check\ncat page.txt").stdout == "hello"


def test_what_a_cell_was_shown_of_the_host_is_not_there_for_one_that_may_send_it_away(
    notebook: Notebook, tmp_path: Path
) -> None:
    (tmp_path / "private.txt").write_text("private")
    shown = notebook.run(f"%%sandbox bash --mount {tmp_path}:/data\ncp /data/private.txt /box; ls /box")
    assert shown.stdout == "private.txt\n"
    assert notebook.run(f"%%sandbox bash {notebook.allow}\nls /box").stdout == ""
    assert notebook.run("%%sandbox bash --fresh\nls /box").stdout == ""
