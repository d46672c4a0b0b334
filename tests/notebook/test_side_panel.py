"""The side panel's requests: what they are answered with, and that they do what the ``%sandbox`` lines do."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import CellPlan, first_defaults
from sandbox_kernel.notebook.side_panel import _ACTIONS, PanelDesk, PanelRequest, limits_of_dialog
from sandbox_kernel.policy.network_rule import NetworkRule
from sandbox_kernel.session.cell.request import LimitLift
from tests.notebook.test_here import OTHER_MEMORY, Page, _no_input

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f00050001ff56"
    "c7610d0000000049454e44ae426082"
)


class Desk:
    """A notebook, its cells, and the requests of a panel beside it."""

    def __init__(self) -> None:
        self.state = NotebookState()
        self.cells: dict[int, str] = {}
        self.desk = PanelDesk(self.state, self.cells)
        self.number = 0

    def run(self, text: str) -> None:
        self.number += 1
        self.cells[self.number] = f"id-{self.number}"

        async def go() -> None:
            execution = CellExecution(self.state, Page(), _no_input, asyncio.Event(), self.number)  # type: ignore[arg-type]
            done = await execution.run(text)
            assert done.failure is None, done.failure

        asyncio.run(go())

    def ask(self, action: str, **given: object) -> dict[str, Any]:
        async def go() -> dict[str, object]:
            return await self.desk.answer({"action": action, **given}, asyncio.Event())

        return asyncio.run(go())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").write_text("1,2")
    (folder / "dot.png").write_bytes(PNG)
    monkeypatch.chdir(folder)
    made = Desk()
    yield made
    made.state.sandboxes.close()


def test_the_tree_names_the_cells_of_the_notebook_and_going_back_is_the_lines_undo(desk: Desk) -> None:
    assert desk.ask("tree") == {"status": "ok", "nodes": [], "more": 0}
    desk.run("x = 1")
    desk.run("y = 2")
    nodes = desk.ask("tree")["nodes"]
    assert [(node["cell"], node["added"], node["present"]) for node in nodes[1:]] == [
        ("id-1", ["x"], False),
        ("id-2", ["y"], True),
    ]
    assert desk.ask("undo")["text"].startswith("took back cell [2]: y = 2")
    assert [node["present"] for node in desk.ask("tree")["nodes"]] == [False, True, False]
    found = desk.ask("compare", before=nodes[1]["id"], after=nodes[2]["id"])
    assert [name for name, _ in found["added"]] == ["y"]
    assert desk.ask("go", state=nodes[2]["id"])["status"] == "ok"
    desk.ask("name", name="good")
    assert desk.ask("tree")["nodes"][2]["name"] == "good"
    assert desk.ask("name", name="early", state=nodes[1]["id"])["text"].startswith(
        "The state after cell [1] is 'early'"
    )
    assert [node["name"] for node in desk.ask("tree")["nodes"]] == ["", "early", "good"]
    assert desk.ask("name", name="nowhere", state=99)["status"] == "error"
    found = desk.ask("variables", state=nodes[2]["id"])
    assert (found["known"], sorted(found["variables"]), found["more"]) == (
        True, [["x", "int", "1", 5], ["y", "int", "2", 5]], 0,
    )  # fmt: skip


def test_a_restart_that_would_lose_a_large_variable_is_not_made_unless_that_is_wanted(desk: Desk) -> None:
    desk.run(
        "import threading\nclass Rows:\n    def __init__(self): self.lock, self.parts = threading.Lock(), bytearray(3 << 20)"
    )
    desk.run("import os\nlarge, small, kept = Rows(), (n for n in 'ab'), os.getpid()")
    refused = desk.ask("restart")
    assert refused["loses"] == ["large (3 MB): Rows: TypeError: cannot pickle '_thread.lock' object"]
    assert "Nothing was changed" in refused["error"]
    assert len(desk.ask("tree")["nodes"]) == 3
    told = desk.ask("restart", anyway=True)
    assert "lost: large" in told["text"] and "lost: small" in told["text"][:140]  # all that a notification shows


def test_the_panel_applies_what_it_shows_and_nothing_else(desk: Desk) -> None:
    desk.run("%sandbox --here\nopen('notes.txt', 'w').write('harmless'); open('Makefile', 'w').write('x')")
    found = desk.ask("changes")
    assert [(one["path"], one["named"]) for one in found["changes"]] == [("Makefile", True), ("notes.txt", False)]
    assert desk.ask("change", path="notes.txt")["digest"] == found["digest"]
    desk.run("open('notes.txt', 'w').write('evil')")
    told = desk.ask("apply", paths=[], shown=found["digest"])
    assert told["status"] == "error" and "not those that you were shown" in told["error"]
    assert Path("notes.txt").read_text() == "one\ntwo\n"
    assert desk.ask("change", path="notes.txt")["digest"] != found["digest"]
    told = desk.ask("apply", paths=[], shown=desk.ask("changes")["digest"])
    assert "%sandbox apply Makefile" in told["text"], told
    assert Path("notes.txt").read_text() == "evil" and not Path("Makefile").exists()


def test_changes_are_listed_shown_applied_and_dropped(desk: Desk) -> None:
    desk.run(
        "%sandbox --here\n"
        "open('notes.txt', 'a').write('three\\n'); open('new.bin', 'wb').write(bytes(9))\n"
        "open('dot.png', 'ab').write(b'\\0')"
    )
    found = desk.ask("changes")
    assert [(one["path"], one["kind"]) for one in found["changes"]] == [
        ("dot.png", "modified"),
        ("new.bin", "created"),
        ("notes.txt", "modified"),
    ]
    assert "+three" in desk.ask("change", path="notes.txt")["patch"]
    picture = desk.ask("change", path="dot.png")
    assert picture["before"].startswith("data:image/png;base64,")
    Path("new.bin").write_bytes(b"mine")
    told = desk.ask("apply", paths=["new.bin", "notes.txt"])
    assert (told["status"], told["conflicts"]) == ("error", ["new.bin"])
    assert Path("notes.txt").read_text() == "one\ntwo\n"
    assert desk.ask("apply", paths=["notes.txt"])["status"] == "ok"
    assert Path("notes.txt").read_text() == "one\ntwo\nthree\n"
    desk.ask("discard", paths=[])
    assert desk.ask("changes")["changes"] == []


@pytest.mark.slow
def test_the_dialogs_limits_reach_the_running_session_and_go_again(desk: Desk) -> None:
    desk.run("x = 1")
    before = desk.ask("overview")["limits"]
    wanted = {"timeout": "9s", "memory": OTHER_MEMORY, "domains": ["example.org"], "mounts": ["data:/data"]}
    told = desk.ask("limits", **wanted, here="")
    assert "keeps its variables" in told.get("text", ""), told
    assert desk.ask("overview")["limits"] == {**wanted, "here": ""}
    desk.run("assert x == 1 and open('/data/a.csv').read() == '1,2'")
    assert desk.ask("limits", **before)["status"] == "ok"
    assert desk.ask("overview")["limits"]["mounts"] == []


def test_a_change_that_is_refused_gives_nothing_of_it(desk: Desk) -> None:
    desk.run("%sandbox --allow-net example.org --env KIND=old\nx = 1")
    before = desk.ask("overview")["limits"]
    # The session began with the domain, so it cannot be taken; the folder must not stay in it either.
    told = desk.ask("limits", timeout="9s", domains=[], mounts=["data:/data"])
    assert "cannot be taken" in told["error"]
    assert desk.ask("overview")["limits"] == before
    desk.run("import os\nassert x == 1 and not os.path.exists('/data/a.csv')")
    with pytest.raises(AssertionError):
        desk.run("%sandbox reset --env KIND=new --env MORE=1 --mount data:/data")
    desk.run("assert os.environ['KIND'] == 'old' and 'MORE' not in os.environ and not os.path.exists('/data/a.csv')")


@pytest.mark.slow
def test_what_a_running_session_cannot_be_given_is_an_error_and_nothing_changes(desk: Desk) -> None:
    desk.run("x = 1")
    before = desk.ask("overview")["limits"]
    refused = desk.ask("limits", **{**before, "here": "."})
    assert refused["status"] == "error"
    assert "--here" in refused["error"]
    assert desk.ask("overview")["limits"] == before
    told = desk.ask("restart", **{**before, "here": "."})
    assert "has the variables of the one before" in told["text"], told
    assert desk.ask("overview")["limits"]["here"] == "."
    desk.run("assert x == 1 and open('notes.txt').read()")
    assert "has the variables" in desk.ask("restart")["text"]
    desk.run("assert x == 1 and open('notes.txt').read()")


@pytest.mark.parametrize(
    "content",
    [
        *(None, [], {}, {"action": 1}, {"action": "run", "code": "1"}, {"action": "go", "state": "1; x"}),
        *({"action": "apply", "paths": "x"}, {"action": "apply", "paths": [1]}, {"action": "compare", "before": -1}),
        *({"action": "limits", "timeout": "soon"}, {"action": "limits", "mounts": ["x"]}, {"action": "name"}),
    ],
)
def test_bad_requests_are_answered_with_an_error(desk: Desk, content: object) -> None:
    told = asyncio.run(desk.desk.answer(content, asyncio.Event()))
    assert told["status"] == "error"
    assert told["error"]


def test_no_text_of_a_request_becomes_another_command_or_option(desk: Desk) -> None:
    plan = _ACTIONS["apply"](desk.desk, PanelRequest(paths=("--all\n%sandbox reset", "a b")))
    assert isinstance(plan, CellPlan)
    assert [(command.name, command.targets) for command in plan.commands] == [
        ("apply", ("--all\n%sandbox reset", "a b"))
    ]
    with pytest.raises(InvalidRequest):
        limits_of_dialog(PanelRequest(timeout="5s --policy x"), CellOptions())


def test_the_dialog_changes_what_it_names_and_an_empty_field_takes_an_option_away() -> None:
    before = CellOptions(policy="strict", memory_mb=5, allow_net=(NetworkRule("a.org"),))
    assert limits_of_dialog(PanelRequest(timeout="5s"), before) == replace(before, timeout_s=5)
    assert limits_of_dialog(PanelRequest(domains=(), memory=""), before) == CellOptions(policy="strict")


def test_time_and_memory_of_the_dialog_are_kept_for_all_notebooks_but_not_by_a_locked_kernel(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = {"JPY_SESSION_NAME": "/a.ipynb"}
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert desk.ask("limits", timeout="45s", memory="600M", every=True)["status"] == "ok"
    assert first_defaults(page) == CellOptions(timeout_s=45, memory_mb=600)
    monkeypatch.setenv("SANDBOX_KERNEL_LINES", "locked")
    assert "locked" in desk.ask("limits", timeout="40s", every=True)["error"]
    assert first_defaults(page) == CellOptions(timeout_s=45, memory_mb=600)


def test_a_running_cell_is_given_more_by_the_panels_own_message_but_not_in_a_locked_kernel(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "does not run" in desk.ask("more", cell="a", name="time")["error"]
    lift = desk.state.lifts["a"] = LimitLift()
    lift.timeout_s, lift.memory_mb, lift.most_mb = 30, 512, 2048
    assert desk.ask("more", cell="a", name="time") == {"status": "ok"}
    assert (lift.timeout_s, lift.memory_mb) == (60, 512)
    monkeypatch.setenv("SANDBOX_KERNEL_LINES", "locked")
    assert "locked" in desk.ask("more", cell="a", name="memory")["error"]
    assert lift.memory_mb == 512
