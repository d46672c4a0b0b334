"""The MCP tools of a folder of the user: an agent sees and drops changes, and applies them only when it may."""

import asyncio
from pathlib import Path
from typing import Any

from sandbox_kernel import Sandbox
from sandbox_kernel.agent.mcp.toolbox import Toolbox
from tests.agent.mcp.test_toolbox import ToolCall
from tests.workspace.overlay.conftest import project as project


def answers(box: Sandbox, may_apply: bool, *calls: tuple[str, dict[str, object]]) -> list[dict[str, Any]]:
    async def all_of_them() -> list[dict[str, Any]]:
        toolbox = Toolbox(box, may_apply=may_apply)
        found = []
        for name, args in calls:
            reply = await toolbox.call(name, ToolCall(args=args, cancel=asyncio.Event()))
            found.append(dict(reply.answer))
        return found

    return asyncio.run(all_of_them())


RUN: tuple[str, dict[str, object]] = (
    "session_run",
    {"code": "open('data/rows.csv', 'a').write('3,4\\n'); open('n.txt', 'w').write('1')"},
)


def test_an_agent_sees_and_drops_what_it_changed(project: Path) -> None:
    with Sandbox(here=project) as box:
        _, seen, wrong, many, dropped = answers(
            box,
            False,
            RUN,
            ("folder_changes", {"paths": ["data"]}),
            ("folder_changes", {"paths": "data"}),
            ("folder_changes", {"paths": ["data"] * 501}),
            ("discard_changes", {"paths": ["n.txt"]}),
        )
        assert "+3,4" in seen["patch"] and len(seen["changes"]) == 2
        assert wrong["status"] == many["status"] == "error"
        assert [row["path"] for row in dropped["changes"]] == ["n.txt"]
        assert "apply_changes" not in Toolbox(box).tools
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n"


def test_an_agent_that_may_apply_does(project: Path) -> None:
    with Sandbox(here=project) as box:
        _, done = answers(box, True, RUN, ("apply_changes", {}))
        assert done["status"] == "success"
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n3,4\n"


def test_an_agent_applies_no_hook_of_git_by_naming_it(project: Path) -> None:
    """The name must come from the user: a model does what a file tells it."""
    with Sandbox(here=project) as box:
        code = "import os\nfor n in ('.git/hooks', '.vscode'): os.makedirs(n)\n"
        code += "for n in ('.git/hooks/post-commit', '.vscode/tasks.json', 'n.txt'): open(n, 'w').write('x')\n"
        code += "os.symlink('/etc', 'out')"
        everything = ["n.txt", ".git", ".vscode/tasks.json", "out"]
        _, hook, link, all_named, again = answers(
            box,
            True,
            ("session_run", {"code": code}),
            ("apply_changes", {"paths": [".git/hooks/post-commit"]}),
            ("apply_changes", {"paths": ["out"]}),
            ("apply_changes", {"paths": everything}),
            ("apply_changes", {"paths": ["n.txt"]}),
        )
        for refused in (hook, link, all_named):
            assert refused["status"] == "error" and "only the user can apply it" in str(refused), refused
        assert [row["path"] for row in again["changes"]] == ["n.txt"]
        assert {".git/hooks/post-commit", ".vscode/tasks.json", "out"} <= set(again["left_out"])
        box.apply([".git/hooks/post-commit"])
    assert (project / ".git/hooks/post-commit").read_text() == "x"
    assert not (project / ".vscode").exists() and not (project / "out").is_symlink()


def test_an_agent_writes_ordinary_content_of_the_state_that_it_was_shown(project: Path) -> None:
    with Sandbox(here=project) as box:
        more = ("session_run", {"code": "open('n.txt', 'w').write('2'); open('conftest.py', 'w').write('x')"})
        _, seen = answers(box, True, RUN, ("folder_changes", {}))
        stale: tuple[str, dict[str, object]] = ("apply_changes", {"shown": seen["digest"]})
        _, refused, wrong = answers(box, True, more, stale, ("apply_changes", {"shown": 1}))
        assert refused["status"] == "error" and "not those that you were shown" in str(refused)
        assert wrong["status"] == "error" and not (project / "n.txt").exists()
        (now,) = answers(box, True, ("folder_changes", {}))
        (done,) = answers(box, True, ("apply_changes", {"shown": now["digest"]}))
        assert done["left_out"] == ["conftest.py"] and "git apply" in done["message"]
    assert (project / "n.txt").read_text() == "2" and not (project / "conftest.py").exists()


def test_a_sandbox_without_a_folder_does_not_offer_its_tools() -> None:
    with Sandbox() as box:
        assert not {"folder_changes", "discard_changes", "apply_changes"} & set(Toolbox(box, may_apply=True).tools)


def test_a_look_at_some_changes_or_at_a_cut_patch_gives_an_agent_no_digest(project: Path) -> None:
    with Sandbox(here=project) as box:
        assert box.run("open('a.txt', 'w').write('1'); open('b.txt', 'w').write('1')").ok
        some, whole = answers(box, True, ("folder_changes", {"paths": ["a.txt"]}), ("folder_changes", {}))
        assert "digest" not in some and whole["digest"] == box.digest()
        assert box.run("open('c.txt', 'w').writelines('123456789\\n' for _ in range(19_999))").ok
        (cut,) = answers(box, True, ("folder_changes", {}))
        assert "digest" not in cut
