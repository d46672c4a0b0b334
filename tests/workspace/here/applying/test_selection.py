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
    *(
        "AGENTS.md",
        ".gitmodules",
        ".zed/settings.json",
        "a.pth",
        "sitecustomize.py",
        "CLAUDE.local.md",
        "opencode.json",
    ),
    *(
        "AGENTS.override.md",
        "lefthook-local.yml",
        "x.sublime-project",
        "azure-pipelines.yml",
        "Jenkinsfile",
        "Makefile",
    ),
    *("conftest.py", "setup.py", "pyproject.toml", "package.json", "noxfile.py", "Dockerfile", "sub/eslint.config.mjs"),
    *(".nobody_knows_this_tool", "sub/.nor/this/one.txt", "node_modules/x/index.js", "env/lib/site-packages/six.py"),
    # Bytecode and libraries that are loaded in place of a source which nobody changed.
    *("src/__pycache__/tool.cpython-311.pyc", "src/tool.so", "src/tool.cpython-311-x86_64-linux-gnu.so"),
    # Other spellings of such names, on file systems that know no case, no marks or no dots at the end.
    *("MAKEFILE", "makefile. ", "Makefile::$DATA", "CLAUDE~1.MD", "\u200bMakefile", "\uff0egit", "Make\u017file.mk"),
]


@pytest.mark.parametrize("name", OBEYED_WITHOUT_ASKING)
def test_what_runs_by_itself_is_not_applied_with_everything_else(project: Path, name: str) -> None:
    here = HereFolder(project)
    for path in (name, "tool.py", "data/new.csv", "README.md"):
        here.write(path, "x")
    assert set(applied(here)) >= {"README.md", "data/new.csv", "tool.py"}
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
    # Removed by one apply, it could be made anew by the next.
    here.remove("mine.ipynb")
    assert applied(here) == [] and here.left_out() == ("mine.ipynb",)
    assert applied(here, "mine.ipynb") == ["mine.ipynb"]


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


def names(changes: object) -> set[str]:
    return {change.path for change in changes}  # type: ignore[attr-defined]


def by_agent(project: Path, code: str) -> tuple[set[str], set[str]]:
    """What an agent's apply wrote of the changes of a program, and what it left out."""
    with Sandbox(here=project) as box:
        made = box.run(code)
        assert made.ok, made.stderr
        return names(box.apply(by_user=False)), set(box.left_out())


def test_a_file_that_becomes_executable_and_a_wider_mode_are_held_back(project: Path) -> None:
    (project / "private.txt").write_text("x")
    (project / "private.txt").chmod(0o600)
    written, held = by_agent(
        project,
        "import os\nfor n in ('new.sh', 'open.txt', 'setuid'): open(n, 'w').write('x')\n"
        "os.chmod('new.sh', 0o755); os.chmod('open.txt', 0o666); os.chmod('setuid', 0o4755)\n"
        "os.chmod('src/tool.py', 0o755); os.chmod('private.txt', 0o644); os.chmod('data', 0o777)\n"
        "os.mkdir('all'); os.chmod('all', 0o777); open('all/x', 'w').write('x')\n"
        "open('run.sh', 'a').write('x'); open('data/rows.csv', 'a').write('x'); os.unlink('link'); open('link', 'w')",
    )
    assert written == {"run.sh", "data/rows.csv", "link"}
    assert held == {"new.sh", "open.txt", "setuid", "src/tool.py", "private.txt", "data", "all", "all/x"}


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history", "bin/activate"])
@pytest.mark.parametrize("by_program", [False, True])
def test_an_environment_is_held_back_whoever_made_it_one(project: Path, mark: str, by_program: bool) -> None:
    inner = "env/lib/python3.11/six.py"
    (project / inner).parent.mkdir(parents=True)
    (project / inner).write_text("x = 1\n")
    place = project / "env" / mark
    if not by_program:
        place.parent.mkdir(exist_ok=True)
        place.write_text("home = /usr/bin\n")
    how = f"os.makedirs({mark!r} and os.path.dirname('env/{mark}'), exist_ok=True); open('env/{mark}', 'w').write('x')"
    written, held = by_agent(
        project,
        f"import os; open({inner!r}, 'a').write('y'); open('n', 'w').write('1')\n"
        + (how if by_program else f"os.unlink('env/{mark}')"),
    )
    assert written == {"n"} and {inner, f"env/{mark}"} <= held


#: A setting of git, and a path of the folder that it names.
NAMED_BY_GIT = [
    ("[core]\n\thooksPath = tools/x", "tools/x/pre-commit"),
    ("[core] hookspath = ../up/project/tools/x", "tools/x/pre-commit"),
    ("[core]\nhooksPath = .", "pre-commit"),
    ("[core]\n\tfsmonitor = tools/watch", "tools/watch"),
    ('[core]\n\tfsmonitor = "tools/my watch" --fast', "tools/my watch"),
    ('[filter "lfs"]\n\tclean = python \\\n tools/clean.py %f', "tools/clean.py"),
    ('[diff "x"]\n\ttextconv = sh -c \\"tools/conv %s\\"', "tools/conv"),
    ('[merge "a]b"]\n\tdriver = $(git rev-parse --show-toplevel)/tools/merge %O', "tools/merge"),
    ("[include]\n\tpath = ../tools/settings", "tools/settings"),
    ('[includeIf "gitdir:**"]\n\tpath = ../tools/settings', "tools/settings"),
    ('[credential]\n\thelper = "!sh tools/helper"', "tools/helper"),
]


@pytest.mark.parametrize(("setting", "path"), NAMED_BY_GIT)
@pytest.mark.parametrize("where", ["here", "above", "nested", "worktree", "home"])
def test_what_settings_of_git_name_is_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, path: str, where: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    setting = setting.replace("../up/project", str(tmp_path / "project"))
    top = tmp_path / "project"
    here = top / "sub" if where == "above" else top
    config = top / ".git/config"
    if where == "nested":
        top = top / "vendor/lib"
        config, setting = top / ".git/config", setting.replace(str(tmp_path / "project"), str(top))
    elif where == "worktree":
        config, gitdir = tmp_path / "main/.git/config", tmp_path / "main/.git/worktrees/w"
        gitdir.mkdir(parents=True)
        (gitdir / "commondir").write_text("../..\n")
        top.mkdir()
        (top / ".git").write_text(f"gitdir: {gitdir}\n")
    elif where == "home":
        config = tmp_path / "home/.gitconfig"
    if "include" in setting:
        setting = setting.replace("../tools", str(top / "tools"))
    if where == "above":
        setting = setting.replace("tools/", "sub/tools/").replace("hooksPath = .", "hooksPath = sub")
    here.mkdir(parents=True, exist_ok=True)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[core]\n\tbare = false\n[user]\n\tname = A data\n[credential]\n\thelper = store\n{setting}\n")
    changed = f"vendor/lib/{path}" if where == "nested" else path
    folder = HereFolder(here)
    for name in (changed, "data/x.csv", "store/y.csv", "tools.txt"):
        folder.write(name, "x")
    written = names(folder.apply(by_user=False))
    assert "data/x.csv" in written and "store/y.csv" in written
    assert changed not in written and changed in folder.left_out()
    assert not (here / changed).exists()


def test_an_included_file_of_settings_is_read_too(project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git/config").write_text("[include]\n\tpath = ../conf/git.inc\n")
    (project / "conf").mkdir()
    (project / "conf/git.inc").write_text("[core]\n\thooksPath = src\n")
    here = HereFolder(project)
    for path in ("src/tool.py", "conf/git.inc", "n"):
        here.write(path, "x")
    assert applied(here) == ["n"] and here.left_out() == ("conf/git.inc", "src/tool.py")


def test_a_pipe_in_place_of_settings_stops_nobody(project: Path) -> None:
    (project / ".git").mkdir()
    os.mkfifo(project / ".git/config")
    here = HereFolder(project)
    here.write("n", "x")
    assert applied(here) == ["n"]


def test_a_repository_in_two_halves_is_held_back(project: Path) -> None:
    """Git reads the settings of the folder that ``commondir`` names."""
    here = HereFolder(project)
    for path in ("a/HEAD", "n"):
        here.write(path, "x")
    assert applied(here) == ["a", "a/HEAD", "n"]
    here.write("a/commondir", "../c")
    here.write("a/more", "x")
    assert applied(here) == []


def test_where_a_link_of_the_user_leads_that_a_tool_obeys_is_held_back(project: Path) -> None:
    for folder in (".git/hooks", ".claude", "docs", "prompts"):
        (project / folder).mkdir(parents=True)
    (project / "CLAUDE.md").symlink_to("docs/guide.md")
    (project / ".claude/commands").symlink_to("../prompts")
    (project / ".git/hooks/pre-commit").symlink_to("../../src/tool.py")
    here = HereFolder(project)
    for path in ("docs/guide.md", "prompts/new.md", "src/tool.py", "docs/other.md"):
        here.write(path, "x")
    assert applied(here) == ["docs/other.md"]


def test_a_folder_that_became_a_link_is_held_back_with_what_was_in_it(project: Path) -> None:
    (project / "nbs").mkdir()
    (project / "nbs/a.ipynb").write_text("mine")
    (project / "current").symlink_to("nbs")
    code = (
        "import os, shutil\nshutil.copytree('nbs', 'nbs2'); open('nbs2/a.ipynb', 'w').write('evil')\n"
        "for n in ('nbs', 'src'): shutil.rmtree(n); os.symlink('nbs2', n)\n"
        "os.unlink('current'); os.symlink('nbs2', 'current'); os.symlink('data', 'fine'); os.symlink('.env', 'notes')"
    )
    written, held = by_agent(project, code)
    assert written == {"nbs2", "nbs2/a.ipynb", "fine"}
    assert held == {"nbs", "nbs/a.ipynb", "src", "src/tool.py", "current", "notes"}
    assert (project / "current/a.ipynb").read_text() == "mine" and (project / "src/tool.py").is_file()


@pytest.mark.parametrize("second", ["os.mkdir('current')", "os.symlink('evil', 'current')"])
def test_two_applies_write_no_more_than_one(project: Path, second: str) -> None:
    """What one apply would hold back, a removal and then something new do not bring in."""
    (project / "nbs").mkdir()
    (project / "nbs/a.ipynb").write_text("mine")
    (project / "current").symlink_to("nbs")
    (project / "Makefile").write_text("mine")
    first = "import os, shutil; os.unlink('current'); shutil.rmtree('nbs'); os.unlink('Makefile'); os.unlink('run.sh')"
    then = f"import os; os.mkdir('evil'); {second}; os.mkdir('nbs'); open('nbs/a.ipynb', 'w').write('evil')\n"
    then += "open('Makefile', 'w').write('evil'); open('run.sh', 'w').write('evil'); os.chmod('run.sh', 0o755)"
    with Sandbox(here=project) as box:
        for code in (first, then):
            assert box.run(code).ok
            box.apply(by_user=False)
    assert (project / "current/a.ipynb").read_text() == "mine" and (project / "Makefile").read_text() == "mine"
    assert not (project / "run.sh").exists()


def test_a_hard_link_of_the_user_keeps_its_other_name(project: Path) -> None:
    os.link(project / "data/rows.csv", project / ".rows")
    written, _ = by_agent(project, "open('data/rows.csv', 'w').write('new')")
    assert written == {"data/rows.csv"}
    assert (project / ".rows").read_text() == "a,b\n1,2\n"


def test_a_build_file_that_becomes_a_folder_is_held_back_and_a_folder_of_its_name_is_not(project: Path) -> None:
    (project / "Makefile").write_text("mine")
    (project / "build").mkdir()
    code = "import os; os.unlink('Makefile'); os.mkdir('Makefile'); open('Makefile/x', 'w').write('1')\n"
    code += "os.mkdir('workspace'); [open(f'{n}/a.csv', 'w').write('1') for n in ('workspace', 'build')]"
    written, held = by_agent(project, code)
    assert written == {"workspace", "workspace/a.csv", "build/a.csv"} and "Makefile" in held
    assert (project / "Makefile").read_text() == "mine"
