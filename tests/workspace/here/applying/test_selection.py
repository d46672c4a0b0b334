"""What is applied without being named, and what a name or a pattern means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.workspace.here.here_folder import HereFolder


def applied(here: HereFolder, *paths: str) -> list[str]:
    return [change.path for change in here.apply(paths or None)]


@pytest.mark.parametrize("name", ["*", "[a-z.]*", "?*", "data*"])
def test_a_file_with_the_name_of_a_pattern_takes_no_others_along(project: Path, name: str) -> None:
    here = HereFolder(project)
    for path in (name, ".git/hooks/pre-commit", "b.py", "data/rows.csv"):
        here.write(path, "x")
    assert applied(here, name) == [name]
    here.write(name, "y")
    assert [change.path for change in here.discard([name])] == [name]


def test_a_pattern_or_a_folder_takes_nothing_along_that_a_tool_obeys(project: Path) -> None:
    here = HereFolder(project)
    for path in (".git/hooks/x.py", ".GIT/hooks/y.py", "b.py", "data/.env", "data/.vscode/tasks.json", "data/new.csv"):
        here.write(path, "x")
    assert applied(here, "*.py") == ["b.py"]
    assert applied(here, "data") == ["data/new.csv"]
    here.write("b.py", "y")
    assert applied(here, ".") == ["b.py"]
    with pytest.raises(InvalidRequest, match="own name"):
        here.apply(["*.json"])
    assert applied(here, "data/.vscode") == ["data/.vscode", "data/.vscode/tasks.json"]
    assert applied(here, "./data/.env") == ["data/.env"]


#: Read or run by a program of the user that nobody asked to: by git, shells, editors, Jupyter, agents.
OBEYED_WITHOUT_ASKING = [
    *("jupyter_server_config.py", "sub/jupyter_config.json", "ipython_kernel_config.py", "my.code-workspace"),
    *(".bashrc", ".zshenv", ".vimrc", ".pylintrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs", "sub/CLAUDE.md"),
    *("AGENTS.md", ".gitmodules", ".zed/settings.json", "a.pth", "sitecustomize.py"),
]


@pytest.mark.parametrize("name", OBEYED_WITHOUT_ASKING)
def test_what_runs_by_itself_is_not_applied_with_everything_else(project: Path, name: str) -> None:
    here = HereFolder(project)
    for path in (name, "tool.py", "conftest.py", "Makefile"):
        here.write(path, "x")
    assert set(applied(here)) >= {"Makefile", "conftest.py", "tool.py"}
    assert not (project / name).exists() and name in here.left_out()
    assert name in applied(here, name)


def test_a_program_writes_into_the_users_notebook_only_when_it_is_named(project: Path) -> None:
    """A line in it gives rights, its metadata names the kernel that runs it."""
    (project / "mine.ipynb").write_text("{}")
    here = HereFolder(project)
    for path in ("mine.ipynb", "new.ipynb"):
        here.write(path, '{"metadata": {"kernelspec": {"name": "python3"}}}')
    assert applied(here) == ["new.ipynb"]
    assert here.left_out() == ("mine.ipynb",)
    assert applied(here, "mine.ipynb") == ["mine.ipynb"]
    here.remove("mine.ipynb")
    assert applied(here) == ["mine.ipynb"]


def test_a_repository_without_the_name_of_one_is_not_applied(project: Path) -> None:
    """Git obeys the settings in it when somebody enters the folder; prompts of shells ask git all the time."""
    with Sandbox(here=project) as box:
        made = box.run(
            "import subprocess; subprocess.run(['git', 'init', '-q', '--bare', 'data/cache'], check=True)\n"
            "open('data/cache/config', 'a').write('[core]\\n\\tfsmonitor = touch /tmp/x\\n'); open('n', 'w').write('1')"
        )
        assert made.ok, made.stderr
        assert [change.path for change in box.apply()] == ["n"]
        assert not (project / "data/cache").exists()
        box.apply(["data/cache"])
    assert (project / "data/cache/config").exists()


def test_a_path_in_another_spelling_is_found(project: Path) -> None:
    here = HereFolder(project)
    for path in ("a.txt", "./b.txt", "/box/c.txt", "data/../d.txt", "x//y.txt"):
        here.write(path, "x")
    assert [change.path for change in here.diff()] == ["a.txt", "b.txt", "c.txt", "d.txt", "x", "x/y.txt"]
    assert here.read("/box/./b.txt") == b"x"
    assert applied(here, "./a.txt", "/box/b.txt") == ["a.txt", "b.txt"]
    here.remove("./c.txt")
    assert [change.path for change in here.diff()] == ["d.txt", "x", "x/y.txt"]


def test_a_link_that_leaves_the_folder_through_another_link_is_not_applied(project: Path) -> None:
    (project / "mine").symlink_to("/mnt")
    with Sandbox(here=project) as box:
        result = box.run(
            "import os\nos.makedirs('a/b'); os.symlink('../..', 'a/b/up'); os.symlink('a/b/up/../etc', 'docs')\n"
            "os.symlink('a/b/up/data', 'fine'); os.symlink('docs/x', 'second'); os.symlink('mine/x', 'third')\n"
            "os.symlink('loop', 'loop')"
        )
        assert result.ok, result.stderr
        assert {change.path for change in box.apply()} == {"a", "a/b", "a/b/up", "fine"}
        assert box.left_out() == ("docs", "loop", "second", "third")
        box.apply(["docs"])
    assert os.readlink(project / "docs") == "a/b/up/../etc"


def test_a_folder_is_not_emptied_for_a_link_that_is_left_out(project: Path) -> None:
    with Sandbox(here=project) as box:
        assert box.run(
            "import os, shutil; shutil.rmtree('src'); os.symlink('../sib', 'src'); open('b', 'w').write('x')"
        ).ok
        assert [change.path for change in box.apply()] == ["b"]
        assert (project / "src/tool.py").exists()
        assert box.left_out() == ("src", "src/tool.py")
        box.apply(["src"])
    assert os.readlink(project / "src") == "../sib"


def test_a_folder_with_a_hidden_file_blocks_nothing_else(project: Path) -> None:
    (project / "src/.env").write_text("SECRET\n")
    with Sandbox(here=project) as box:
        box.run("import shutil; shutil.move('src', 'moved'); open('b', 'w').write('x')")
        written = {change.path for change in box.apply() if change.type == "file"}
        assert written == {"b", "moved/tool.py", "src/tool.py"}
        assert box.left_out() == ("src",)
        assert (project / "src/.env").read_text() == "SECRET\n" and not (project / "src/tool.py").exists()
        with pytest.raises(InvalidRequest, match="hidden"):
            box.apply(["src"])
