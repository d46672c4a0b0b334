"""LineSetting of cells ask for rights: what is one, who gives it, and what is remembered."""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.notebook.execution import CellExecution, CellReply
from sandbox_kernel.notebook.options import own_rights
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.option_table import COMMANDS, OPTIONS
from sandbox_kernel.notebook.options.own_rights import LINES_VARIABLE, LineRights, LineSetting, can_be_asked, shown
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from sandbox_kernel.notebook.side_panel import PanelDesk
from tests.notebook.test_here import Notebook, Page, _no_input
from tests.workspace.overlay.conftest import project as project

DEFAULTS = CellOptions(here=".")
#: The rows of the table that ask for a right. A new row is one until it is marked as harmless; then it is written here.
RIGHTS = {"--allow-net", "--mount", "--gpu", "--gpu-memory", "--here", "--policy", "--python",
          "apply", "discard", "allow", "install", "functions", "save", "load", "autosave", "recover"}  # fmt: skip


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv(LINES_VARIABLE)
    return folder


@pytest.fixture
def notebook(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.chdir(project)
    made = Notebook()
    made.state.defaults = DEFAULTS
    yield made
    made.state.sandboxes.close()


def lacking(text: str, rights: LineRights | None = None) -> tuple[str, ...]:
    return (rights or LineRights(LineSetting.ASK)).lacking(parse_cell(text, DEFAULTS), DEFAULTS)


def press(notebook: Notebook, action: str, **given: object) -> dict[str, object]:
    return asyncio.run(PanelDesk(notebook.state, {}).answer({"action": action, **given}, asyncio.Event()))


def test_every_row_of_the_table_is_decided() -> None:
    assert {row.name for row in (*OPTIONS, *COMMANDS) if not row.harmless} == RIGHTS


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("%sandbox --mount /etc:/data", "--mount /etc:/data"),
        ("%%sandbox python --mount /etc:/data:rw\n1", "--mount /etc:/data:rw"),
        ("%sandbox --mount ~:/h", f"--mount {os.path.realpath(os.path.expanduser('~'))}:/h"),
        ("%sandbox --here ../other", f"--here {os.path.realpath('../other')}"),
        ("%sandbox reset --here ../other", f"--here {os.path.realpath('../other')}"),
        ("%sandbox restart --keep --allow-net example.org", "--allow-net example.org"),
        ("%%sandbox --allow-net example.org:8443\n1", "--allow-net example.org:8443"),
        ("%sandbox --gpu all", "--gpu all"),
        ("%sandbox --gpu-memory 4G", "--gpu-memory 4G"),
        ("%sandbox --policy build", "--policy build"),
        ("%sandbox --python 3.12", "--python 3.12"),
        ("%%sandbox --backend dask --session dask\n1", "--backend dask"),
        ("%sandbox apply", "%sandbox apply"),
        ("%sandbox --timeout 5s\n%sandbox apply .git/hooks/pre-commit", "%sandbox apply .git/hooks/pre-commit"),
        ("%sandbox discard 'a b'", "%sandbox discard 'a b'"),
        ("%sandbox allow once ./data.csv", "%sandbox allow once ./data.csv"),
        ("%sandbox save run.sh", "%sandbox save run.sh"),
        ("%sandbox load mywork javascript", "%sandbox load mywork javascript"),
        ("%sandbox recover", "%sandbox recover"),
        ("%sandbox autosave 5m", "%sandbox autosave 5m"),
        ("%sandbox functions f", "%sandbox functions f"),
    ],
)
def test_a_line_asks_for_a_right(text: str, right: str) -> None:
    assert lacking(text) == (right,)
    refused = LineRights(LineSetting.ASK).refusal((right,))
    assert isinstance(refused, PolicyViolation)
    assert right in str(refused) and f"{LINES_VARIABLE}=all" in str(refused)


@pytest.mark.parametrize("setting", [LineSetting.LIMITS, LineSetting.LOCKED])
def test_a_fresh_cell_may_have_less_memory_than_it_would_have_unasked(
    setting: LineSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights, cell = LineRights(setting), "%%sandbox --fresh --memory 1G\n1"
    assert lacking(cell, rights) == ()
    assert lacking("%%sandbox rust --memory 2G\nfn main() {}", rights) == ()
    assert lacking("%%sandbox --fresh --memory 2049M\n1", rights) == ("--memory 2049M",)
    assert lacking("%%sandbox --memory 1G\n1", rights) == ("--memory 1G",), "a session has 512 MB"
    assert lacking("%sandbox --fresh --memory 1G", rights) == ("--memory 1G",), "later sessions would have it"
    low = replace(DEFAULTS, memory_mb=256)
    assert rights.lacking(parse_cell(cell, low), low) == ("--memory 1G",), "the defaults say how much"
    monkeypatch.setenv("SANDBOX_KERNEL_OPTIONS", "--memory 256M")
    assert lacking(cell, rights) == ("--memory 1G",), "the environment says how much"


@pytest.mark.parametrize("setting", [LineSetting.LIMITS, LineSetting.LOCKED])
@pytest.mark.parametrize(
    ("below", "above"),
    [("--memory 512M", "--memory 513M"), ("--timeout 30s", "--timeout 31s"), ("--processes 64", "--processes 65"),
     ("--disk 256M", "--disk 257M"), ("--output 1M", "--output 1025K")],
)  # fmt: skip
def test_a_line_raises_no_limit_of_its_kernel_where_nobody_is_asked(
    setting: LineSetting, below: str, above: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = LineRights(setting)
    assert lacking(f"%sandbox {below}", rights) == lacking(f"%sandbox {above}") == ()
    for text in (
        f"%sandbox {above}",
        f"%%sandbox {above}\n1",
        f"%sandbox reset {above}",
        f"%sandbox restart --keep {above}",
    ):
        assert lacking(text, rights) == (above,)
    assert lacking("%sandbox --cpu 1h", rights) == (), "CPU time has no limit of its own"
    for given, over in (("--memory 256M", "--memory 300M"), ("--timeout 5s", "--timeout 6s"), ("--cpu 5s", "--cpu 6s")):
        monkeypatch.setenv("SANDBOX_KERNEL_OPTIONS", given)
        assert lacking(f"%sandbox {given}", rights) == lacking(f"%sandbox {over}") == ()
        assert lacking(f"%sandbox {over}", rights) == (over,)
    raised = replace(DEFAULTS, memory_mb=8192)  # in the side panel
    assert rights.lacking(parse_cell("%sandbox --memory 6G", raised), raised) == ()


@pytest.mark.parametrize(
    ("below", "above"),
    [("--timeout 24h", "--timeout 1441m"), ("--disk 16G", "--disk 17G"), ("--processes 4096", "--processes 4097"),
     ("--memory 512M", "--memory 2000G"), ("--output 16M", None)],
)  # fmt: skip
def test_a_user_is_asked_about_limits_that_no_cell_of_theirs_needs(below: str, above: str | None) -> None:
    assert lacking(f"%sandbox {below}") == ()
    assert above is None or lacking(f"%sandbox {above}") == (above,)


@pytest.mark.parametrize(
    "text",
    ["1", "%sandbox --timeout 5s --memory 200M", "%%sandbox javascript --session a\n1", "%sandbox reset", "%sandbox --here",
     "%sandbox changes", "%sandbox --policy strict", "%sandbox --policy classroom", "%sandbox never example.org", "%sandbox undo", "%sandbox", "%sandbox help", "%sandbox files"],
)  # fmt: skip
def test_lower_limits_languages_and_looks_ask_for_nothing(text: str) -> None:
    for setting in LineSetting:
        assert lacking(text, LineRights(setting)) == ()


def test_a_policy_file_with_other_content_is_another_right(tmp_path: Path) -> None:
    policy = tmp_path / "p.toml"
    policy.write_text('[[mounts]]\nhost = "/etc"\nguest = "/data"\n')
    (first,) = lacking(f"%sandbox --policy {policy}")
    assert str(policy) in first and "/etc" in first
    policy.write_text('[[mounts]]\nhost = "/etc"\nguest = "/data"\nwritable = true\n')
    assert lacking(f"%sandbox --policy {policy}") != (first,)


@pytest.mark.parametrize(
    ("line", "words"),
    [('gpu = "all"', "gpu: all"), ("allowProcessSpawn = true", "processes: may be started"),
     ('[[networkRules]]\ndomain = "a.org"\nports = [443, 8443]', "network: a.org:443:8443"), ("", "nothing")],
)  # fmt: skip
def test_the_question_for_a_policy_file_tells_all_that_it_gives(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(line)
    (right,) = lacking(f"%sandbox --policy {tmp_path}/p.toml")
    assert f"(allows: {words}; " in right


def test_a_preset_that_gives_more_than_the_kernel_has_is_a_right() -> None:
    strict = replace(DEFAULTS, policy="strict")
    rights = LineRights(LineSetting.LOCKED)
    assert rights.lacking(parse_cell("%sandbox --policy standard", strict), strict) == ("--policy standard",)
    assert rights.lacking(parse_cell("%sandbox --policy strict", strict), strict) == ()


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ("%sandbox --mount {link}:/d", ""),
        ("%sandbox --here {link}", ""),
        ("%sandbox --policy {link}.toml", '[[mounts]]\nhost = "{link}"\nguest = "/d"\n'),
        ("%sandbox --policy {link}.toml", '[[allowedPaths]]\npath = "{link}"\nmode = "readWrite"\n'),
    ],
)
def test_a_link_that_leads_elsewhere_is_another_right(tmp_path: Path, line: str, policy: str) -> None:
    link, rights = tmp_path / "data", LineRights(LineSetting.ASK)
    line = line.format(link=link)
    (tmp_path / "data.toml").write_text(policy.format(link=link))
    link.symlink_to("/usr")
    rights.allow(lacking(line))
    assert lacking(line, rights) == ()
    link.unlink()
    link.symlink_to("/etc")
    (asked,) = lacking(line, rights)
    assert "/etc" in asked and str(link) not in asked.replace(f"{link}.toml", "")


def test_the_question_for_an_interpreter_says_that_it_is_started_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "venv").mkdir()
    for written in ("venv", "./venv", f"{tmp_path}/venv"):
        assert lacking(f"%sandbox --python {written}") == (
            f"--python {tmp_path}/venv (started outside of the sandbox, once)",
        )
    assert lacking("%sandbox --python 3.12") == ("--python 3.12",)


def test_what_is_shown_has_no_invisible_letter_no_line_break_and_shows_its_end() -> None:
    text = shown("--mount '/x\u202e\n\u200b\x1b[2J':" + "/g" * 50_000 + ":rw")
    assert text.isprintable() and "\\u{202e}\\u{a}\\u{200b}\\u{1b}[2J" in text
    assert text.endswith(":rw") and len(text) < 400


def test_what_cannot_be_shown_as_a_whole_is_not_asked_for(notebook: Notebook) -> None:
    assert can_be_asked(["x" * own_rights.MOST_SHOWN] * own_rights.MOST_ASKED)
    assert not can_be_asked(["x"] * (own_rights.MOST_ASKED + 1))
    hidden = f"%sandbox apply {'a ' * 800} .git/hooks/pre-commit {'b ' * 800}"
    many = "%sandbox " + " ".join(f"--allow-net a{number}.org" for number in range(own_rights.MOST_ASKED + 1))
    seen = press(notebook, "rights", cells=[hidden, many, "%sandbox apply", *["%sandbox --gpu all"] * 60])
    assert [cell for cell, _ in seen["cells"]] == list(range(3, 3 + own_rights.MOST_ASKED))  # type: ignore[attr-defined]
    assert press(notebook, "allow-rights", key=seen["key"])["status"] == "ok"
    asked: list[str] = []

    async def question(text: str) -> str:
        asked.append(text)
        return "allow"

    async def go(text: str) -> CellReply:
        execution = CellExecution(notebook.state, Page(), _no_input, asyncio.Event(), question=question)  # type: ignore[arg-type]
        return await execution.run(text)

    for cell in (hidden, many):
        refused = asyncio.run(go(cell)).refused
        assert isinstance(refused, PolicyViolation) and len(str(refused)) < 5000
    assert asked == []


def test_a_notebook_is_looked_through_for_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_rights, "SURVEY_S", 0.01)
    (tmp_path / "slow.toml").write_text("#\n" * 30_000 + "allowNetwork = true")
    found = LineRights(LineSetting.ASK).survey([f"%sandbox --policy {tmp_path}/slow.toml"] * 50, DEFAULTS)
    assert len(str(found["cells"])) < 2000, "the other cells ask when they run"


def test_a_word_that_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LineRights().setting is LineSetting.ASK
    monkeypatch.setenv(LINES_VARIABLE, "none")
    with pytest.raises(InvalidRequest, match="none of: ask, limits, locked, all"):
        _ = LineRights().setting


def test_an_answer_is_remembered_for_a_path_and_these_rights_alone(tmp_path: Path, state: Path) -> None:
    here, other = str(tmp_path / "a.ipynb"), str(tmp_path / "b.ipynb")
    both = "%sandbox --mount /etc:/data --allow-net example.org"
    first = LineRights(LineSetting.ASK, here)
    first.allow(lacking(both, first))
    again = LineRights(LineSetting.ASK, here)
    assert lacking(both, again) == lacking("%sandbox --mount /etc:/data", again) == ()
    assert lacking("%sandbox --mount /etc:/data:rw", again) and lacking("%sandbox --allow-net example.net", again)
    assert len(lacking(both, LineRights(LineSetting.ASK, other))) == len(lacking(both)) == 2
    for setting in (LineSetting.LIMITS, LineSetting.LOCKED):
        assert len(lacking(both, LineRights(setting, here))) == 2
    (kept,) = (state / "sandbox-kernel" / "rights").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    kept.write_text(json.dumps({"notebook": other, "rights": list(lacking(both))}))
    assert len(lacking(both, LineRights(LineSetting.ASK, here))) == 2, "another notebook's"
    for content in ("", "[]", "{", '{"notebook": 1}', f'{{"notebook": "{here}", "rights": [1]}}'):
        kept.write_text(content)
        assert len(lacking(both, LineRights(LineSetting.ASK, here))) == 2
    kept.parent.chmod(0o777)
    LineRights(LineSetting.ASK, here).allow(["a new right"])
    assert "a new right" not in kept.read_text(), "others could change it"


def test_a_line_that_a_press_wrote_is_remembered_where_the_notebook_has_its_rights(
    notebook: Notebook, tmp_path: Path
) -> None:
    path = str(tmp_path / "a.ipynb")
    notebook.state.rights = LineRights(notebook=path)
    for line in ("%sandbox --here", "%sandbox --mount /etc:/data"):
        assert press(notebook, "keep-line", line=line)["status"] == "ok"
    later = LineRights(notebook=path)
    fresh = CellOptions()
    assert later.lacking(parse_cell("%sandbox --here", fresh), fresh) == ()
    assert later.lacking(parse_cell("%sandbox --here /etc", fresh), fresh) == ("--here /etc",)
    assert lacking("%sandbox --mount /etc:/data", later)


def test_the_answers_of_few_notebooks_are_remembered(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_rights, "MOST_NOTEBOOKS", 2)
    kept = state / "sandbox-kernel" / "rights"
    for number in range(2):
        LineRights(LineSetting.ASK, str(tmp_path / f"{number}.ipynb")).allow(["--gpu all"])
    assert len(list(kept.iterdir())) == 2
    for one in kept.iterdir():
        os.utime(one, (1, 1))
    LineRights(LineSetting.ASK, str(tmp_path / "new.ipynb")).allow(["--gpu all"])
    assert len(list(kept.iterdir())) == 2
    assert lacking("%sandbox --gpu all", LineRights(LineSetting.ASK, str(tmp_path / "new.ipynb"))) == ()


def test_the_page_allows_what_it_was_shown_and_nothing_else(notebook: Notebook) -> None:
    cells = ["%sandbox --mount /etc:/data", "1", "%%sandbox --allow-net example.org\n1", "%sandbox no-such-command"]
    seen = press(notebook, "rights", cells=cells)
    assert seen["cells"] == [
        [1, [["--mount /etc:/data", "show a host path inside, read-only without :rw"]]],
        [3, [["--allow-net example.org", "let it reach a domain"]]],
    ]
    newer = press(notebook, "rights", cells=cells[:1])
    assert press(notebook, "allow-rights", key=seen["key"])["status"] == "error", "a newer question was shown"
    assert press(notebook, "allow-rights", key=newer["key"])["status"] == "ok"
    assert press(notebook, "allow-rights", key=newer["key"])["status"] == "error"
    assert "PolicyViolation" not in notebook.run(cells[0])
    assert "PolicyViolation" in notebook.run(cells[2])
    assert press(notebook, "rights", cells=["%sandbox"] * 10_001)["status"] == "error"


def test_a_cell_writes_nothing_and_a_press_does(notebook: Notebook, project: Path) -> None:
    assert "PolicyViolation" not in notebook.run("open('n.txt', 'w').write('1')")
    assert "PolicyViolation" in notebook.run("%sandbox apply") and not (project / "n.txt").exists()
    assert press(notebook, "apply", paths=[])["status"] == "ok"
    assert (project / "n.txt").read_text() == "1"


LOCKED_OUT = [
    {"action": "apply", "paths": []},
    {"action": "discard", "paths": []},
    {"action": "limits", "mounts": ["/etc:/data"]},
    {"action": "limits", "domains": ["example.org"]},
    {"action": "restart", "here": "/"},
    {"action": "answer", "line": "%sandbox allow once ./notes.txt"},
    {"action": "answer", "line": "%sandbox allow example.org"},
]


def test_nobody_gives_a_right_to_a_locked_kernel(
    notebook: Notebook, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.run("open('n.txt', 'w').write('1')")
    monkeypatch.setenv(LINES_VARIABLE, "locked")
    for given in LOCKED_OUT:
        told = press(notebook, **given)  # type: ignore[arg-type]
        assert told["status"] == "error" and "nobody does while the kernel runs" in str(told["error"]), given
        assert notebook.state.defaults == DEFAULTS and not (project / "n.txt").exists()
    seen = press(notebook, "rights", cells=["%sandbox --mount /etc:/data"])
    assert press(notebook, "allow-rights", key=seen["key"])["status"] == "error"
    assert press(notebook, "limits", timeout="9s", here=".")["status"] == "ok", "limits are no rights"
    monkeypatch.setenv(LINES_VARIABLE, "limits")
    assert press(notebook, "allow-rights", key=seen["key"])["status"] == "error"
    assert press(notebook, "answer", line="%sandbox --mount /etc:/data")["status"] == "error", "no offer"


def test_a_locked_kernel_offers_nothing(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "open('/box/' + 'missing.txt')"
    Path("missing.txt").write_text("there")
    for setting, offered in (("locked", False), ("limits", True)):
        monkeypatch.setenv(LINES_VARIABLE, setting)
        notebook.state.defaults = CellOptions()
        page = Page()

        async def go(page: Page = page) -> CellReply:
            execution = CellExecution(notebook.state, page, _no_input, asyncio.Event(), question=_no_input)  # type: ignore[arg-type]
            return await execution.run(code)

        asyncio.run(go())
        assert ("%sandbox allow once ./missing.txt" in page.text) is offered


def test_a_question_that_found_nobody_is_not_asked_again(notebook: Notebook) -> None:
    asked: list[str] = []

    async def question(text: str) -> None:
        asked.append(text)

    async def go() -> CellReply:
        execution = CellExecution(notebook.state, Page(), _no_input, asyncio.Event(), question=question)  # type: ignore[arg-type]
        return await execution.run("%sandbox --mount /etc:/data")

    assert [str(asyncio.run(go()).refused)[:7] for _ in range(2)] == ["--mount", "--mount"]
    assert len(asked) == 1
