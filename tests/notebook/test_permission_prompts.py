"""Offers of rights: what a cell lacked, as buttons, as lines to type, and never more than that."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import ExecResult, Violation, notes
from sandbox_kernel.model.notes import RightAnswer, Wanted, WantedKind
from sandbox_kernel.notebook.execution import CellExecution, CellReply
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import new_defaults, parse_line, parse_wanted, written
from sandbox_kernel.notebook.permission_prompts import MIME, MOST_OFFERS, bundle, offers_of
from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes
from sandbox_kernel.untrusted.sanitize import sanitize_bundle
from tests.loopback_server import QuietHandler, serving
from tests.notebook.test_here import Notebook as PlainNotebook
from tests.notebook.test_here import Page as PlainPage
from tests.notebook.test_here import _no_input


def domain(name: str) -> Wanted:
    return Wanted(WantedKind.DOMAIN, name)


def file(path: str) -> Wanted:
    return Wanted(WantedKind.FILE, path)


def refused(subject: str, rule: str = "domain_not_allowed") -> Violation:
    return Violation(rule=rule, subject=subject, reason="it is not on the allow list")


def test_what_a_cell_lacked_is_offered_once_each() -> None:
    result = ExecResult(
        violations=(refused("a.test:443"), refused("b.test:8443", "port_not_allowed"), refused("a.test:80")),
        notes=(notes.no_network("a.test"), notes.hint_file("", "data/x.csv", "you")),
    )
    assert [offer.wanted for offer in offers_of(result)] == [
        domain("a.test"),
        domain("b.test:8443"),
        file("data/x.csv"),
    ]
    assert domain("a.test") not in [offer.wanted for offer in offers_of(result, {domain("a.test")})]


def test_what_cannot_be_given_is_not_offered() -> None:
    secret, outside = notes.hint_file("", ".env", "you"), notes.hint_file("", "../x", "you")
    private = refused("10.0.0.1:80", "private_ip_blocked")
    assert offers_of(ExecResult(notes=(secret, outside, notes.no_network()), violations=(private,))) == ()


def test_a_program_that_tries_many_hosts_gets_few_buttons() -> None:
    assert len(offers_of(ExecResult(violations=tuple(refused(f"a{n}.test:443") for n in range(99))))) == MOST_OFFERS


@pytest.mark.parametrize(
    "wanted", [domain("a.test"), domain("b.test:8443"), file("data/a b.csv"), file("x.csv"), file("it's/<b>.csv")]
)
def test_every_line_of_an_offer_means_what_its_button_says(wanted: Wanted) -> None:
    (offer,) = offers_of(ExecResult(notes=(notes.Note("x", wanted=wanted),)))
    for answer in RightAnswer:
        assert shlex.split(offer.line(answer))[0] == "%sandbox"
        command = parse_line(offer.line(answer).removeprefix("%sandbox"))
        assert command.wanted == wanted
        assert (command.name, command.once) == ("never" if answer == "never" else "allow", answer == "once")
    assert parse_wanted(written(wanted), "allow") == wanted


def test_a_domain_for_the_session_is_added_to_the_defaults_and_one_for_a_cell_is_not() -> None:
    had = parse_line("--allow-net a.test").options
    assert new_defaults(parse_line("allow b.test:8443"), had).words() == "--allow-net a.test --allow-net b.test:8443"
    for line in ("allow once b.test", "never b.test", "allow ./data", "allow b.test --session web"):
        assert new_defaults(parse_line(line), had) == had


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("allow", "needs a domain or a path"),
        ("allow once", "needs a domain or a path"),
        ("never --session x", "needs a domain or a path"),
        ("allow a.test b.test", "b.test"),
        ("allow a.test --timeout 5s", "one domain or path"),
        ("allow https://a.test/x", "a.test"),
        ("allow ../secret", "not inside the notebook's folder"),
        ("allow /etc/passwd", "not inside the notebook's folder"),
        ("allow data_folder!", "./NAME"),
    ],
)
def test_a_line_that_names_no_right_is_refused_with_what_works(line: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words.replace(".", r"\.")):
        parse_line(line)


def test_a_page_without_buttons_shows_the_lines_as_text() -> None:
    made = bundle(offers_of(ExecResult(notes=(notes.Note("x", wanted=file("<b>/$x$.csv")),))))
    assert "<b>/" not in str(made["text/html"]) and "mathjax_ignore" in str(made["text/html"])
    assert "%sandbox allow once" in str(made["text/plain"])
    (offer,) = made[MIME]["offers"]  # type: ignore[index]
    assert offer["kind"] == "file" and set(offer["lines"]) == {"once", "session", "never"}


@pytest.mark.attack("O06", "kernel")
def test_a_program_cannot_show_buttons_of_its_own() -> None:
    forged = bundle(offers_of(ExecResult(notes=(notes.no_network("evil.test"),))))
    assert MIME not in sanitize_bundle(forged, {}).data


def test_options_reach_each_domain_once() -> None:
    assert CellOptions().reaching(["a.test", "a.test", "[2001:db8::1]:443"]).words() == (
        "--allow-net a.test --allow-net '[2001:db8::1]:443'"
    )


class Fine(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


class Page(PlainPage):
    """A page with buttons, or (not ``watched``) a console."""

    def __init__(self, *, watched: bool = True) -> None:
        super().__init__()
        self._watched = watched
        self.offers: list[dict[str, object]] = []

    def message(self, message: object) -> None:
        super().message(message)
        if isinstance(message, ShowOutput) and isinstance(found := message.data.get(MIME), dict):
            self.offers += found["offers"]

    def watched(self) -> bool:
        return self._watched


class Notebook(PlainNotebook):
    """Every name leads to loopback."""

    page_class = Page
    page: Page

    def __init__(self, port: int) -> None:
        super().__init__(factory=self._box)
        self.host = f"allowed.test:{port}"
        self.get = f"import urllib.request as r; print(r.urlopen('http://{self.host}/', timeout=20).status)"

    @staticmethod
    def _box(policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
        return Sandbox(
            policy, backend, config=config, allow_private_for=["allowed.test"], resolver=lambda *_: ["127.0.0.1"]
        )


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("a,b\n")
    (tmp_path / "data" / ".env").write_text("SECRET=1\n")
    with serving(Fine) as port:
        made = Notebook(port)
        yield made
        made.state.sandboxes.close()


@pytest.mark.slow
def test_a_domain_for_one_cell_ends_with_it(notebook: Notebook) -> None:
    notebook.run("kept = 41")
    assert "URLError" in notebook.run(notebook.get)
    (offer,) = notebook.page.offers
    assert offer["kind"] == "domain" and offer["what"] == notebook.host
    once = notebook.run(f"%sandbox allow once {notebook.host}\n{notebook.get}\nprint(kept)")
    assert "200\n41\n" in once
    # Processes and open connections of that cell lose the right with it.
    left = (
        "import http.client, os, subprocess, sys, urllib.request\n"
        "proxy = os.environ['http_proxy'].removeprefix('http://')\n"
        f"line = http.client.HTTPConnection(proxy); line.request('GET', 'http://{notebook.host}/')\n"
        "print(line.getresponse().read())\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys, urllib.request as r\\nsys.stdin.read(1)\\n"
        f'try: print(r.urlopen("http://{notebook.host}/").status)\\n'
        "except Exception as e: print(type(e).__name__, e)'], stdin=-1, stdout=-1)"
    )
    assert "b''" in notebook.run(f"%sandbox allow once {notebook.host}\n{left}")
    assert "200" not in notebook.run("print(child.communicate(b'x', timeout=20)[0].decode())")
    assert "403" in notebook.run(notebook.get) or "refused" in notebook.run(notebook.get)
    assert {offer["what"] for offer in notebook.page.offers} == {notebook.host}


@pytest.mark.slow
def test_a_domain_for_the_session_keeps_the_variables(notebook: Notebook) -> None:
    notebook.run("kept = 41")
    assert "keeps its variables" in notebook.run(f"%sandbox allow {notebook.host}")
    assert "200\n41\n" in notebook.run(f"{notebook.get}\nprint(kept)")
    assert "200" in notebook.run(f"%%sandbox --fresh\n{notebook.get}")


@pytest.mark.slow
def test_a_named_session_is_given_its_right(notebook: Notebook) -> None:
    notebook.run("%%sandbox --session web\nkept = 41")
    notebook.run(f"%%sandbox --session web\n{notebook.get}")
    lines = notebook.page.offers[0]["lines"]
    assert str(lines["session"]).endswith("--session web")  # type: ignore[index]
    notebook.run(f"%sandbox allow {notebook.host} --session web")
    assert "200\n41" in notebook.run(f"%%sandbox --session web\n{notebook.get}\nprint(kept)")


def test_a_fresh_cell_reaches_a_domain_once(notebook: Notebook) -> None:
    assert "200" in notebook.run(f"%sandbox allow once {notebook.host}\n%sandbox --fresh\n{notebook.get}")
    assert "200" not in notebook.run(notebook.get)


def test_a_file_beside_the_notebook_is_there_for_one_cell(notebook: Notebook) -> None:
    read = "print(open('data/rows.csv').read())"
    assert "FileNotFoundError" in notebook.run(read)
    assert [offer["what"] for offer in notebook.page.offers] == ["data/rows.csv"]
    assert "a,b" in notebook.run(f"%sandbox allow once data/rows.csv\n{read}")
    assert "FileNotFoundError" in notebook.run(read)
    assert "a,b" in notebook.run(f"%sandbox allow once data/rows.csv\n%sandbox --fresh\n{read}")
    assert "FileNotFoundError" in notebook.run(read)


def test_a_folder_stays_for_the_session_without_its_secrets(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run("kept = 41")
    assert "a copy of data (1 files)" in notebook.run("%sandbox allow ./data")
    assert "41 ['rows.csv']" in notebook.run("import os; print(kept, os.listdir('data')); open('data/rows.csv', 'w')")
    assert (tmp_path / "data" / "rows.csv").read_text() == "a,b\n"
    # Named, a secret is given; a second time the copy is made anew.
    assert "SECRET" in notebook.run("%sandbox allow data/.env\nprint(open('data/.env').read())")
    assert "a,b" in notebook.run("%sandbox allow ./data\nprint(open('data/rows.csv').read())")


def test_a_copy_replaces_no_work_of_a_cell(notebook: Notebook) -> None:
    notebook.run("import os; os.mkdir('data'); open('data/rows.csv', 'w').write('mine')")
    assert "of its own already" in notebook.run("%sandbox allow data/rows.csv")
    assert "mine" in notebook.run("print(open('data/rows.csv').read())")


def test_a_link_out_of_the_folder_is_not_followed(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("/etc/hostname")
    (tmp_path / "away").symlink_to("/etc")
    assert "symlink" in notebook.run("%sandbox allow ./link.csv")
    assert "a link stands in the way" in notebook.run("%sandbox allow away/hostname")
    assert "[]" in notebook.run("import os; print(os.listdir('.'))")


@pytest.mark.slow
def test_what_is_never_to_be_given_is_not_offered_again(notebook: Notebook) -> None:
    notebook.run("open('data/rows.csv')")
    assert notebook.page.offers
    assert "is not offered again" in notebook.run("%sandbox never data/rows.csv")
    notebook.run("open('data/rows.csv')")
    assert not notebook.page.offers
    notebook.run("%sandbox allow once data/rows.csv")
    notebook.run("1")
    notebook.run("open('data/rows.csv')")
    assert notebook.page.offers


def test_behind_landlock_a_domain_is_refused_before_the_cell_runs(notebook: Notebook) -> None:
    def behind_landlock(policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
        box = Sandbox(policy, backend, config=config)
        box.backend = ProcessBackend(enforcer="landlock", policy=policy)
        return box

    notebook.state.sandboxes = NotebookSandboxes(behind_landlock)
    try:
        notebook.run("kept = 41")
        answer = notebook.run(f"%sandbox allow once {notebook.host}\nkept = 42")
        assert "PolicyViolation" in answer and "fetch on the host" in answer
        # Under such a default no later cell would run: the line is refused, and the defaults stay.
        assert "PolicyViolation" in notebook.run(f"%sandbox --allow-net {notebook.host}")
        assert "41" in notebook.run("print(kept)")
        assert "a,b" in notebook.run("%sandbox allow ./data\nprint(open('data/rows.csv').read())")
    finally:
        notebook.state.sandboxes.close()


def test_a_console_shows_the_lines_that_give_what_a_cell_lacked(notebook: Notebook) -> None:
    page = Page(watched=False)

    async def go() -> CellReply:
        return await CellExecution(notebook.state, page, _no_input, asyncio.Event(), question=_no_input).run(  # type: ignore[arg-type]
            "open('data/rows.csv')"
        )

    assert asyncio.run(go()).failure is not None
    assert "once: %sandbox allow once data/rows.csv" in page.text
