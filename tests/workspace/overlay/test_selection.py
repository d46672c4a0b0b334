"""What is applied without being named, and what a name or a pattern means."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.workspace.overlay import named_by_tools
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.project import ProjectFolder


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
    "jupyter_server_config.py", "sub/jupyter_config.json", "ipython_kernel_config.py", "my.code-workspace", ".bashrc",
    ".zshenv", ".vimrc", ".pylintrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs", "sub/CLAUDE.md", "AGENTS.md",
    ".gitmodules", ".zed/settings.json", "a.pth", "sitecustomize.py", "CLAUDE.local.md", "opencode.json",
    "AGENTS.override.md", "lefthook-local.yml", "x.sublime-project", "azure-pipelines.yml", "Jenkinsfile", "Makefile",
    "conftest.py", "setup.py", "pyproject.toml", "package.json", "noxfile.py", "Dockerfile", "sub/eslint.config.mjs",
    "gems.rb", "rakefile.rb", "project.clj", "pdm_build.py", "vitest.workspace.ts", "CODEBUDDY.md", "SOUL.md",
    "requirements/dev.txt", "user.clj", "data_readers.cljc",
    ".nobody_knows_this_tool", "sub/.nor/this/one.txt", "node_modules/x/index.js", "env/lib/site-packages/six.py",
    # Bytecode and libraries that are loaded in place of a source which nobody changed.
    "src/__pycache__/tool.cpython-311.pyc", "src/tool.so", "src/tool.cpython-311-x86_64-linux-gnu.so",
    # Other spellings of such names, on file systems that know no case, no marks or no dots at the end.
    "MAKEFILE", "makefile. ", "Makefile::$DATA", "CLAUDE~1.MD", "\u200bMakefile", "\uff0egit", "Make\u017file.mk",
    # Linux reads these to their end.
    "lib/x:evil-1.0.dist-info/entry_points.txt", "notes.md:evil.tf", "a.txt\uff1aevil.gemspec",
]  # fmt: skip


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
            "open('data/cache/config', 'a').write('[core]\\n\\tfsmonitor = touch /tmp/x\\n'); open('n.txt', 'w').write('1')"
        )
        assert made.ok, made.stderr
        assert [change.path for change in box.apply()] == ["n.txt"]
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
            "import os, shutil; shutil.rmtree('src'); os.symlink('../sib', 'src'); open('b.txt', 'w').write('x')"
        ).ok
        assert [change.path for change in box.apply()] == ["b.txt"]
        assert (project / "src/tool.py").exists()
        assert box.left_out() == ("src", "src/tool.py")
        box.apply(["src"])
    assert os.readlink(project / "src") == "../sib"


def test_a_folder_with_a_hidden_file_blocks_nothing_else(project: Path) -> None:
    (project / "src/.env").write_text("SECRET\n")
    with Sandbox(here=project) as box:
        box.run("import shutil; shutil.move('src', 'moved'); open('b.txt', 'w').write('x')")
        written = {change.path for change in box.apply() if change.type == "file"}
        assert written == {"b.txt", "moved/tool.py", "src/tool.py"}
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
    (project / "mine").mkdir(mode=0o700)
    (project / "link").unlink()
    (project / "link.md").symlink_to("run.sh")
    written, held = by_agent(
        project,
        "import os\nfor n in ('new.sh', 'open.txt', 'setuid.txt'): open(n, 'w').write('x')\n"
        "os.chmod('new.sh', 0o755); os.chmod('open.txt', 0o666); os.chmod('setuid.txt', 0o4755)\n"
        "os.chmod('src/tool.py', 0o755); os.chmod('private.txt', 0o644); os.chmod('data', 0o777)\n"
        "os.chmod('mine', 0o755)\n"
        "os.mkdir('all'); os.chmod('all', 0o777); open('all/x.csv', 'w').write('x')\n"
        "open('run.sh', 'a').write('x'); open('data/rows.csv', 'a').write('x'); os.unlink('link.md'); open('link.md', 'w')",
    )
    assert written == {"run.sh", "data/rows.csv"}
    assert held == {
        "link.md",
        "new.sh",
        "open.txt",
        "setuid.txt",
        "src/tool.py",
        "private.txt",
        "data",
        "mine",
        "all",
        "all/x.csv",
    }


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
        f"import os; open({inner!r}, 'a').write('y'); open('n.txt', 'w').write('1')\n"
        + (how if by_program else f"os.unlink('env/{mark}')"),
    )
    assert written == {"n.txt"} and {inner, f"env/{mark}"} <= held


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
    for path in ("src/tool.py", "conf/git.inc", "n.txt"):
        here.write(path, "x")
    assert applied(here) == ["n.txt"] and here.left_out() == ("conf/git.inc", "src/tool.py")


def test_a_pipe_in_place_of_settings_stops_nobody(project: Path) -> None:
    (project / ".git").mkdir()
    os.mkfifo(project / ".git/config")
    here = HereFolder(project)
    here.write("n.txt", "x")
    assert applied(here) == ["n.txt"]


def test_a_repository_in_two_halves_is_held_back(project: Path) -> None:
    """Git reads the settings of the folder that ``commondir`` names."""
    here = HereFolder(project)
    for path in ("a/more.csv", "n.txt"):
        here.write(path, "x")
    assert applied(here) == ["a", "a/more.csv", "n.txt"]
    for path in ("a/HEAD", "a/commondir", "a/more.csv"):
        here.write(path, "../c")
    assert applied(here) == []


def test_where_a_link_of_the_user_leads_that_a_tool_obeys_is_held_back(project: Path) -> None:
    for folder in (".git/hooks", ".claude", "docs", "prompts"):
        (project / folder).mkdir(parents=True)
    (project / "CLAUDE.md").symlink_to("docs/guide.md")
    (project / ".claude/commands").symlink_to("../prompts")
    (project / ".git/hooks/pre-commit").symlink_to("../../src/tool.py")
    (project / "docs/rules.txt").write_text("all:")
    (project / "Makefile").symlink_to("docs/rules.txt")
    (project / "Jenkinsfile").symlink_to("docs/new.groovy")
    here = HereFolder(project)
    for path in (
        "docs/guide.md",
        "prompts/new.md",
        "src/tool.py",
        "docs/rules.txt",
        "docs/new.groovy",
        "docs/other.md",
    ):
        here.write(path, "x")
    assert applied(here) == ["docs/other.md"]


def test_a_link_of_the_user_in_the_middle_of_a_chain_is_changed_only_by_its_name(project: Path) -> None:
    for folder in (".git/hooks", "tools"):
        (project / folder).mkdir(parents=True)
    for name in ("check-v1.sh", "bench.sh"):
        (project / "tools" / name).write_text("mine")
    (project / "tools/check.sh").symlink_to("check-v1.sh")
    (project / ".git/hooks/pre-commit").symlink_to("../../tools/check.sh")
    (project / "prod").symlink_to("/mnt")
    written, held = by_agent(
        project,
        "import os\nos.unlink('tools/check.sh'); os.symlink('bench.sh', 'tools/check.sh')\n"
        "os.unlink('prod'); os.symlink('prod/table.csv', 'out.csv'); open('fine.csv', 'w')",
    )
    assert written == {"fine.csv"}
    assert held == {"tools/check.sh", "prod", "out.csv"}


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
    (project / "link").unlink()
    (project / "Makefile").write_text("mine")
    first = (
        "import os, shutil; os.unlink('current'); shutil.rmtree('nbs'); os.unlink('Makefile'); os.unlink('run.sh')\n"
    )
    first += "open('n.txt', 'w').write('1')"
    then = f"import os; os.mkdir('evil'); {second}; os.mkdir('nbs'); open('nbs/a.ipynb', 'w').write('evil')\n"
    then += "open('n.txt', 'w').write('2'); open('Makefile', 'w').write('evil'); open('run.sh', 'w').write('evil'); os.chmod('run.sh', 0o755)"
    with Sandbox(here=project) as box:
        for code in (first, then):
            assert box.run(code).ok
            box.apply(by_user=False)
    assert (project / "current/a.ipynb").read_text() == "mine" and (project / "Makefile").read_text() == "mine"
    assert not (project / "run.sh").exists()


def test_a_folder_does_not_become_the_file_of_links_that_lead_to_it(project: Path) -> None:
    links = ("GNUmakefile", "pyproject.toml", "Jenkinsfile", "policy.toml")
    with Sandbox(here=project) as box:
        code = (
            f"import os\nos.mkdir('notes.txt'); open('notes.txt/r', 'w')\nfor n in {links}: os.symlink('notes.txt', n)"
        )
        assert box.run(code).ok
        box.apply(by_user=False)
        assert box.run("import shutil; shutil.rmtree('notes.txt'); open('notes.txt', 'w').write('all: ; evil')").ok
        with pytest.raises(InvalidRequest, match=r"cannot be applied alone|obeyed by tools"):
            box.apply(["notes.txt"], by_user=False)
    assert not any((project / link).is_file() for link in links)


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


#: Settings, programs and builds that no list knew; and what an agent is there to write.
NOT_ORDINARY = [
    "latexmkrc", "Brewfile", "hie.yaml", "cabal.project", "App.csproj.user", "gradle/wrapper/gradle-wrapper.properties",
    "config/config.exs", "config.nims", "Session.vim", "docker-bake.hcl", "policy.toml", "sub/rights.toml", "x.hta",
    "kernels/x/kernel.json", "compile_commands.json", "hooks/hooks.json", "data/policy.json", "mkdocs.yml",
    "nobody.knows_this", "helper-1.0.dist-info/entry_points.txt", "x.egg-info/PKG-INFO.txt", "x.egg-link",
    "renv/activate.R", "buildSrc/src/X.groovy", "docs/conf.py", "requirements-dev.txt", "locustfile.py",
]  # fmt: skip
ORDINARY_CONTENT = [
    "train.py", "src/pkg/types.py", "src/pkg/__init__.py", "tests/test_json.py", "analysis.R", "lib/util.ts", "x.sql",
    "notes.md", "README", "results.json", "data/rows.json", "out-data/a.yaml", "rows.parquet", "plot.png", "new.ipynb",
]  # fmt: skip


def test_what_has_no_ordinary_suffix_is_held_back_and_content_is_not(project: Path) -> None:
    here = HereFolder(project)
    for path in (*NOT_ORDINARY, *ORDINARY_CONTENT):
        here.write(path, "x")
    written = names(here.apply(by_user=False))
    assert written.isdisjoint(NOT_ORDINARY) and set(here.left_out()) >= set(NOT_ORDINARY)
    assert written >= set(ORDINARY_CONTENT)


@pytest.mark.parametrize("folder", ["", "nbs/"])
@pytest.mark.parametrize(
    "name",
    [
        *("ipykernel_launcher.py", "jupyter_x.py", "jedi.py", "argparse.py", "json/__init__.py", "orjson.py"),
        # Tried by Python and by packages that are installed, and put together from all places.
        *("org.py", "org/python/core.py", "_manylinux.py", "namespace_of_two/part/__init__.py"),
    ],
)
def test_a_new_module_that_hides_an_installed_one_is_held_back(project: Path, folder: str, name: str) -> None:
    """Kernels and ``python -m`` import from the folder in which they start."""
    (project / "nbs").mkdir()
    (project / "nbs/mine.ipynb").write_text("{}")
    site = project / ".venv/lib/python3.11/site-packages"
    (site / "namespace_of_two/part").mkdir(parents=True)
    (site / "some-1.0.dist-info").mkdir()
    (site / "some-1.0.dist-info/METADATA").write_text(
        "Name: some\nVersion: 1.0\nRequires-Dist: orjson>=3; extra == 'x'\n"
    )
    here = HereFolder(project)
    ordinary = {f"{folder}own_module.py", f"{folder}test/test_own.py", f"{folder}json/own.py"}
    for path in (f"{folder}{name}", *ordinary):
        here.write(path, "x")
    assert ordinary <= names(here.apply(by_user=False))
    assert f"{folder}{name}" in here.left_out()


def test_what_a_hook_starts_by_the_name_of_a_task_is_held_back(project: Path) -> None:
    """As most hooks of JavaScript do: the program stands in ``package.json``."""
    subprocess.run(["git", "init", "-q", project], check=True)
    (project / ".husky").mkdir()
    (project / ".husky/pre-commit").write_text("npm run -s lint\n")
    (project / "package.json").write_text('{"name": "x", "scripts": {"lint": "node scripts/check.js"}}')
    here = HereFolder(project)
    for path in ("scripts/check.js", "app/view.js"):
        here.write(path, "x")
    assert "app/view.js" in names(here.apply(by_user=False))
    assert "scripts/check.js" in here.left_out()


def test_a_module_of_an_environment_in_the_folder_counts_as_installed(project: Path) -> None:
    (project / ".venv/lib/python3.11/site-packages/rare_module").mkdir(parents=True)
    here = HereFolder(project)
    for path in ("rare_module.py", "own.py"):
        here.write(path, "x")
    assert applied(here) == ["own.py"]


def test_a_link_in_place_of_an_installed_package_is_held_back(project: Path) -> None:
    written, held = by_agent(project, "import os; os.symlink('src', 'jedi'); os.symlink('src', 'mine')")
    assert written == {"mine"} and held == {"jedi"}


def test_the_users_own_module_of_an_installed_name_can_be_changed(project: Path) -> None:
    (project / "json.py").write_text("mine")
    here = HereFolder(project)
    here.write("json.py", "x")
    assert applied(here) == ["json.py"]


#: A file of the user that a tool runs by itself, what it says, and the file that is run by that.
SAID = [
    (".git/hooks/pre-commit", "#!/bin/sh\nexec python3 tools/check.py\n", "tools/check.py"),
    (".git/hooks/pre-commit", "cd tools && python3 -m clean.check", "tools/clean/check.py"),
    (".git/hooks/pre-commit", '. "$(dirname "$0")/../../lib.sh"', "lib.sh"),
    (".git/hooks/pre-push", "node -e 'require(`./scripts/lint`)'", "scripts/lint.js"),
    (".git/config", '[core]\n\tfsmonitor = "tools/my watch.py" --fast', "tools/my watch.py"),
    (".git/config", '[filter "x"]\n\tclean = sh -c \\"tools/conv.sh %s\\"', "tools/conv.sh"),
    (".husky/pre-commit", "sh scripts/lint.sh\n", "scripts/lint.sh"),
    (".envrc", "source_env_if_exists x; . ./env/setup.sh\n", "env/setup.sh"),
    (".Rprofile", 'source("start/activate.R")\n', "start/activate.R"),
    (".vscode/tasks.json", '{"tasks": [{"command": "${workspaceFolder}/tools/open.sh"}]}', "tools/open.sh"),
    (".claude/settings.json", '{"hooks": [{"command": "python tools/hook.py"}]}', "tools/hook.py"),
    ("lefthook.yml", "run: ./tools/lint.sh {files}", "tools/lint.sh"),
    ("sub/.envrc", ". ./setup.sh", "sub/setup.sh"),
]


@pytest.mark.parametrize(("file", "text", "path"), SAID)
def test_what_a_hook_or_a_dot_file_of_the_user_names_is_held_back(
    project: Path, file: str, text: str, path: str
) -> None:
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(text)
    here = HereFolder(project)
    for changed in (path, "src/tool.py", "other.py"):
        here.write(changed, "x")
    assert {"src/tool.py", "other.py"} <= names(here.apply(by_user=False))
    assert path in here.left_out() and not (project / path).exists()


def test_what_a_named_file_names_in_turn_is_held_back(project: Path) -> None:
    for path, text in {
        ".git/hooks/pre-commit": "tools/check.py",
        "tools/check.py": "import os\nfrom deeper import more\n",
    }.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    here = HereFolder(project)
    for path in ("tools/deeper.py", "tools/more.py", "n.txt"):
        here.write(path, "x")
    assert applied(here) == ["n.txt"]


_PYTHON = "#!/usr/bin/python3\nimport sys, os; sys.path.insert(0, os.getcwd())\n"
#: A hook, the files that are there, and a change that it would run.
RUN_BY_A_HOOK = [
    ("python3 -m tools.check", {"tools/check.py": ""}, "tools/__init__.py"),
    ("python3 -m tools", {"tools/__main__.py": ""}, "tools/__main__.py"),
    ("python3 tools", {"tools/__main__.py": ""}, "tools/__main__.py"),
    ("python3 -mtools.check", {"tools/check.py": ""}, "tools/check.py"),
    ("python3 -mtools.check", {}, "tools/check.py"),
    ("node tools", {"tools/index.js": ""}, "tools/index.js"),
    ("go run ./tools", {"tools/main.go": ""}, "tools/more.go"),
    ("for f in tools/*.py; do python3 $f; done", {"tools/a.py": ""}, "tools/b.py"),
    ('sh "$ROOT/tools/lint.sh"', {"tools/lint.sh": ""}, "tools/part.sh"),
    ("python3 tools/check.py", {"tools/check.py": "import subprocess\n"}, "tools/selectors.py"),
    ("python3 tools/check.py", {"tools/check.py": "import json, rules\n", "lib/rules.py": ""}, "lib/rules.py"),
    ("exec tools/check", {"tools/check": "#!/usr/bin/env python3\nimport subprocess\n"}, "tools/selectors.py"),
    ("for f in hooks.d/*.sh; do . ./$f; done", {}, "hooks.d/a.sh"),
    ("python3 -m a.b.c", {"a/__init__.py": "from . import util\n", "a/b/c.py": ""}, "a/util.py"),
    (f"{_PYTHON}import json, helper\n", {"helper.py": ""}, "helper.py"),
    (f"{_PYTHON}from tools import common, rules\n", {}, "tools/rules.py"),
    (f"{_PYTHON}from tools import (\n common,\n rules,\n)\n", {}, "tools/rules.py"),
    (f"{_PYTHON}import importlib\nimportlib.import_module('helper')\n", {"helper.py": ""}, "helper.py"),
]


@pytest.mark.parametrize(("hook", "files", "changed"), RUN_BY_A_HOOK)
@pytest.mark.parametrize("where", [".git/hooks/pre-commit", ".pre-commit-config.yaml", "tools/hooks/pre-commit"])
def test_what_a_hook_runs_with_what_it_names_is_held_back(
    project: Path, hook: str, files: dict[str, str], changed: str, where: str
) -> None:
    (project / ".git").mkdir()
    if where.startswith("tools"):
        (project / ".git/config").write_text("[core]\n\thooksPath = tools/hooks ; ours\n")
    for path, text in {where: hook, **files}.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    here = HereFolder(project)
    for path in (changed, "src/tool.py", "other.py"):
        here.write(path, "x")
    assert names(here.apply(by_user=False)) - {"tools", "hooks.d"} == {"src/tool.py", "other.py"}
    assert changed in here.left_out()


def test_what_a_hook_of_an_outer_repository_runs_is_held_back(tmp_path: Path) -> None:
    app = tmp_path / "outer/packages/app"
    (app / "tools").mkdir(parents=True)
    (tmp_path / "outer/.git").mkdir()
    (tmp_path / "outer/.git/config").write_text("[core]\n\thooksPath = .husky\n")
    (tmp_path / "outer/.husky").mkdir()
    (tmp_path / "outer/.husky/pre-commit").write_text("python3 packages/app/tools/lint.py\n")
    (app / "tools/lint.py").write_text("import subprocess\n")
    here = HereFolder(app)
    for path in ("tools/lint.py", "tools/selectors.py", "fine.py"):
        here.write(path, "x")
    assert names(here.apply(by_user=False)) == {"fine.py"}


def test_what_a_python_hook_imports_from_its_own_folder_is_held_back(project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git/config").write_text("[core]\n\thooksPath = githooks # ours\n")
    (project / "githooks").mkdir()
    (project / "githooks/pre-commit").write_text("#!/usr/bin/env python3\nimport subprocess\n")
    here = HereFolder(project)
    for path in ("githooks/selectors.py", "fine.py"):
        here.write(path, "x")
    assert names(here.apply(by_user=False)) == {"fine.py"}


_SETTINGS = "import os\nos.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings.dev'\n"
_INCLUDED = {".git/config": "[include]\n\tpath = ../conf/git.inc\n"}
#: Files that are there, and a change that is run by one of them.
RUN_BEHIND_A_NAME = [
    # A path with spaces, and what lies beside it.
    ({".git/hooks/pre-commit": 'sh "tools/my checks/run.sh"', "tools/my checks/run.sh": ""}, "tools/my checks/part.sh"),
    ({".git/hooks/pre-commit": "cd my\\ checks && python3 -c 'import rules'"}, "my checks/more.py"),
    ({".git/hooks/pre-commit": "sh 'my checks'/run.sh", "my checks/run.sh": ". ./helper part.sh"}, "lib/helper.sh"),
    # Names with dots in a string.
    ({".git/hooks/pre-commit": f"#!/usr/bin/python3\n{_SETTINGS}"}, "config/settings/dev.py"),
    ({".git/hooks/pre-commit": "python3 manage.py check", "manage.py": _SETTINGS}, "config/settings/dev.py"),
    ({".pylintrc": "load-plugins=lint.our_checks\n"}, "lint/our_checks.py"),
    # Settings that settings of git include.
    ({**_INCLUDED, "conf/git.inc": "[core]\n\thooksPath = hk\n", "hk/pre-commit": "pytest checks"}, "checks/a.py"),
    ({**_INCLUDED, "conf/git.inc": '[filter "x"]\n\tclean = python3 lib/clean.py\n', "lib/clean.py": ""}, "lib/re.py"),
    (
        {**_INCLUDED, "conf/git.inc": '[filter "x"]\n\tclean = python3 -m clean\n', "clean.py": "import rules"},
        "lib/rules.py",
    ),
    # An entry below the name of a hook; a folder that a command gets.
    ({".pre-commit-config.yaml": "- hooks:\n  - id: x\n    entry: pytest checks\n    files: ^a"}, "checks/a.py"),
    ({".git/hooks/pre-push": "PYTHONPATH=lib pytest -q checks/unit"}, "checks/unit/test_a.py"),
    ({".git/hooks/pre-push": "PYTHONPATH=lib pytest -q checks/unit"}, "lib/a.py"),
]


@pytest.mark.parametrize(("files", "changed"), RUN_BEHIND_A_NAME)
def test_what_is_run_behind_a_name_with_spaces_or_dots_or_an_included_file_is_held_back(
    project: Path, files: dict[str, str], changed: str
) -> None:
    for path, text in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    here = HereFolder(project)
    for path in (changed, "src/tool.py", "other.py"):
        here.write(path, "x")
    assert {"src/tool.py", "other.py"} <= names(here.apply(by_user=False))
    assert changed in here.left_out()


#: What pre-commit, git and editors write by themselves, and settings as most projects have them.
USUAL = {
    ".git/hooks/pre-commit": """#!/usr/bin/env bash
# File generated by pre-commit: https://pre-commit.com
# ID: 138fd403232d2ddd5efb44317e38bf03

# start templated
INSTALL_PYTHON={root}/.venv/bin/python
ARGS=(hook-impl --config=.pre-commit-config.yaml --hook-type=pre-commit)
# end templated

HERE="$(cd "$(dirname "$0")" && pwd)"
ARGS+=(--hook-dir "$HERE" -- "$@")

if [ -x "$INSTALL_PYTHON" ]; then
    exec "$INSTALL_PYTHON" -mpre_commit "${{ARGS[@]}}"
elif command -v pre-commit > /dev/null; then
    exec pre-commit "${{ARGS[@]}}"
else
    echo '`pre-commit` not found.  Did you forget to activate your virtualenv?' 1>&2
    exit 1
fi
""",
    ".pre-commit-config.yaml": """default_language_version:
  python: python3.11
repos:
  - repo: https://github.com/me/project
    rev: v0.6.0
    hooks:
      - id: ruff
        args: [--fix, --exit-non-zero-on-fix]
      - id: ruff-format
        files: ^(src|docs)/
  - repo: https://github.com/pre-commit/mirrors-mypy
    rev: v1.11.0
    hooks:
    - id: mypy
      additional_dependencies: [types-requests, pydantic==2.8]
      exclude: |
        (?x)^(
          tests/|
          config/app.py
        )$
""",
    ".git/config": """[core]
\trepositoryformatversion = 0
\tbare = false
[user]
\tname = A. Main
\temail = me@project.dev
[remote "origin"]
\turl = git@github.com:me/project.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[alias]
\tlg = log --graph
[filter "lfs"]
\tclean = git-lfs clean -- %f
""",
    ".vscode/settings.json": """{{
  "python.analysis.typeCheckingMode": "basic",
  "editor.formatOnSave": true,
  "python.testing.pytestArgs": ["tests"],
  "search.exclude": {{"data/raw": true}}
}}
""",
}
USUAL_CHANGES = [
    "main.py", "src/app.py", "src/config.py", "src/hooks/use.ts", "src/core/user.py", "project/__init__.py", "src/log.py",
    "project/models.py", "tests/test_app.py", "docs/guide.md", "config/app.py", "data/raw/a.csv", "src/analysis.py",
]  # fmt: skip


def test_usual_hooks_and_settings_hold_back_no_ordinary_source(project: Path) -> None:
    for path, text in USUAL.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text.format(root=project))
    here = HereFolder(project)
    for path in USUAL_CHANGES:
        here.write(path, "x")
    here.apply(by_user=False)
    assert here.left_out() == ()


#: Settings and hooks that look at files and run none of them.
LOOK_ONLY = {
    ".pre-commit-config.yaml": "repos:\n- repo: x\n  hooks:\n  - id: ruff\n    files: ^(src/|docs/)\n    exclude: ^docs/conf\n",
    ".git/hooks/pre-commit": "#!/bin/sh\nruff check src docs\n",
    ".bumpversion.cfg": "[bumpversion:file:src/tool.py]\n",
    ".readthedocs.yaml": "sphinx:\n  configuration: docs/conf.py\n",
}


@pytest.mark.parametrize("file", LOOK_ONLY)
def test_folders_that_are_only_looked_at_can_be_changed_by_an_agent(project: Path, file: str) -> None:
    (project / "docs").mkdir()
    (project / "docs/conf.py").write_text("")
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(LOOK_ONLY[file])
    here = HereFolder(project)
    for path in ("src/more.py", "docs/guide.md"):
        here.write(path, "x")
    assert names(here.apply(by_user=False)) == {"src/more.py", "docs/guide.md"}


def test_texts_and_folders_that_hooks_name_are_read_a_bounded_number_of_times(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, listed = [], []
    scandir, read_text = os.scandir, named_by_tools._read
    monkeypatch.setattr(named_by_tools, "_read", lambda path: read.append(path) or read_text(path))
    monkeypatch.setattr(named_by_tools, "_MOST_FILES", 30)
    monkeypatch.setattr(named_by_tools, "_MOST_FOLDERS", 40)
    for number in range(100):
        (project / f"m/w{number}/w{number}").mkdir(parents=True)
        (project / f"m/w{number}/w.py").write_text("")
    (project / ".githooks").mkdir()
    for number in range(60):
        (project / f".githooks/{number}").write_text("m " + " ".join(f"w{number}" for number in range(100)))
    folder = ProjectFolder(project)
    monkeypatch.setattr(folder.hidden_files, "find", lambda: ())
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert named_by_tools.NamedByTools(folder).has("m/w1/x.py")
    assert len(read) <= 70 and len([path for path in listed if "/m/" in path]) <= 40


def test_hooks_of_shared_settings_count_in_a_repository_below(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[include]\n\tpath = extra.inc\n")
    (tmp_path / "extra.inc").write_text("[core]\n\thooksPath = githooks\n")
    for path in ("a/.git/HEAD", "a/githooks/pre-commit", "lib/linked.sh"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text('. "$HOOKS/common.sh"')
    (project / "a/githooks/commit-msg").symlink_to("../../lib/linked.sh")
    here = HereFolder(project)
    for path in ("a/githooks/pre-commit", "a/githooks/common.sh", "lib/linked.sh", "n.txt"):
        here.write(path, "x")
    assert applied(here) == ["n.txt"]


def test_a_new_link_of_an_odd_name_is_held_back_unless_it_leads_to_a_folder(project: Path) -> None:
    (project / "link").unlink()
    written, held = by_agent(
        project,
        "import os; os.symlink('src/tool.py', 'latexmkrc'); os.symlink('src', 'now'); os.symlink('run.sh', 'a.md')",
    )
    assert written == {"now", "a.md"} and held == {"latexmkrc"}
