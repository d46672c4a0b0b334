"""What is applied without being named, and what a name or a pattern means."""

import os
import re
import sys
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.workspace import hidden
from sandbox_kernel.workspace.overlay import selection
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
@pytest.mark.one_case
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
    assert here.holding("/box/./b.txt").read("/box/./b.txt") == b"x"
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
@pytest.mark.one_case
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
    for path in ("src/tool.py", "conf/git.inc", "n.csv"):
        here.write(path, "x")
    assert applied(here) == ["n.csv"] and here.left_out() == ("conf/git.inc", "src/tool.py")


def test_a_pipe_in_place_of_settings_stops_nobody(project: Path) -> None:
    (project / ".git").mkdir()
    os.mkfifo(project / ".git/config")
    here = HereFolder(project)
    here.write("n.csv", "x")
    assert applied(here) == ["n.csv"]


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
        "docs/other.csv",
    ):
        here.write(path, "x")
    assert applied(here) == ["docs/other.csv"]


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
    "data/pom.xml", "data/docker-compose.yml", "reports/project.json", "data/dvc.yaml", "results/tsconfig.json",
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


@pytest.mark.parametrize("folder", ["", "nbs/", "src/", "libs/own/"])
@pytest.mark.parametrize(
    "name",
    [
        *("ipykernel_launcher.py", "jupyter_x.py", "jedi.py", "argparse.py", "json/__init__.py", "orjson.py"),
        # Tried by Python and by packages that are installed, and put together from all places.
        *("org.py", "org/python/core.py", "_manylinux.py", "namespace_of_two/part/__init__.py"),
    ],
)
@pytest.mark.one_case
def test_a_new_module_that_hides_an_installed_one_is_held_back(
    project: Path, folder: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels and ``python -m`` import from the folder in which they start, and from where this Python looks."""
    monkeypatch.setattr("sys.path", [*sys.path, f"{project}/src"])
    (project / "nbs").mkdir()
    (project / "nbs/mine.ipynb").write_text("{}")
    site = project / ".venv/lib/python3.11/site-packages"
    (site / "namespace_of_two/part").mkdir(parents=True)
    (site / "own.pth").write_text(f"import os\n{project}/libs/own\n")
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


#: Files of the user that may run sources unasked, by discovering them or by names that they compute, and what they say.
RUNS_SOURCES = [
    (".git/hooks/pre-commit", "#!/bin/sh\nexec python3 -m pytest -q\n"),
    (".git/hooks/pre-push", "make test"),
    (".git/hooks/post-merge", "git ls-files '*.py' | xargs -n1 python3"),
    (".git/config", '[core]\n\tfsmonitor = "tools/my watch" --fast'),
    (".git/config", '[filter "x"]\n\tclean = sh -c \\"tools/conv.sh %s\\"'),
    (".git/config", "[nobody]\n\tknows = this key"),
    (".git/config", "[include]\n\tpath = ../conf/git.inc"),
    (".git/config.worktree", "[core] hooksPath = x ; ours"),
    (".git/config", "\0"),
    (".husky/pre-commit", "npm test\n"),
    (".pre-commit-config.yaml", "repos: []"),
    ("lefthook.yml", "run: npm test"),
    (".envrc", "source_up"),
    ("sub/.envrc", "source_up"),
    (".Rprofile", 'source("start.R")'),
    (".vscode/tasks.json", "{}"),
    (".claude/settings.json", "{}"),
    (".nobody_knows_this_tool", ""),
    ("vendor/lib/.git/hooks/post-checkout", "make"),
]


@pytest.mark.parametrize(("file", "text"), RUNS_SOURCES)
@pytest.mark.one_case
def test_where_something_of_the_users_may_run_sources_they_are_written_only_when_the_user_names_them(
    project: Path, file: str, text: str
) -> None:
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(text)
    here = HereFolder(project)
    # Tests run examples of texts, and pickles run what they hold.
    examples = {"README.md", "docs/use.rst", "tests/test_doc.txt", "model.pkl", "weights.bin", "data/x.npy"}
    sources = {"src/tool.py", "tests/test_x.py", "web/a.JS", "new.ipynb", *examples}
    for path in (*sources, "data/new.csv", "plot.png", "Makefile"):
        here.write(path, "x")
    with pytest.raises(InvalidRequest, match="'" + re.escape(file.partition("/")[0])):
        here.apply(["tests/test_x.py"], by_user=False)
    assert {"data/new.csv", "plot.png"} <= names(here.apply(by_user=False))
    assert set(here.left_out()) == {*sources, "Makefile"}
    assert f"'{file.partition('/')[0]}" in here.why_left_out()
    # The user names a folder, a pattern, or all.
    assert "tests/test_x.py" in applied(here, "tests") and applied(here, "*.py") == ["src/tool.py"]
    assert names(here.apply(["."])) & sources == {"web/a.JS", "new.ipynb", *examples - {"tests/test_doc.txt"}}
    assert here.left_out() == ("Makefile",) and here.why_left_out() == ""


def test_a_link_is_no_source_by_another_name(project: Path) -> None:
    """A test that is discovered would be the program's data."""
    (project / ".envrc").write_text("")
    written, held = by_agent(
        project, "import os; open('data/x.csv', 'w').write('1'); os.symlink('data/x.csv', 'test_x.py')"
    )
    assert written == {"data/x.csv"} and held == {"test_x.py"}


#: What git, its LFS and most projects have, which runs nothing of a folder.
RUNS_NOTHING = {
    ".git/hooks/pre-commit.sample": "make test",
    ".git/hooks/pre-push": r"""#!/bin/sh
command -v git-lfs >/dev/null 2>&1 || { printf >&2 "\n%s\n\n" "not found"; exit 2; }
git lfs pre-push "$@"
""",
    ".git/config": """[core]
\trepositoryformatversion = 0
\tbare = false
\tfsmonitor = true
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
\tprocess = git-lfs filter-process
\trequired = true
[submodule "a"]
\turl = https://github.com/me/a.git
[include]
\tpath = ../../shared.inc
""",
    "../shared.inc": "[user]\n\tname = B\n",
    "../home/.gitconfig": """[core]
\tpager = delta --dark
\teditor = code --wait
[credential "https://github.com"]
\thelper =
\thelper = !/usr/bin/gh auth git-credential
[diff "pdf"]
\ttextconv = pdftotext
[filter "nb"]
\tclean = ~/.local/bin/nbstripout -f
""",
    ".github/workflows/test.yml": "run: pytest",
    ".gitignore": "x",
    ".python-version": "3.12",
    ".editorconfig": "",
    ".pytest_cache/README.md": "",
    "node_modules/x/.eslintrc.js": "",
    ".venv/.hidden": "",
}


def test_where_nothing_may_run_sources_agents_write_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.parent / "home"))
    for path, text in RUNS_NOTHING.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    here = HereFolder(project)
    for path in ("main.py", "src/app.ts", "tests/test_app.py", "docs/guide.md", "data/raw/a.csv", "new.ipynb"):
        here.write(path, "x")
    here.apply(by_user=False)
    assert here.why_left_out() == "" and here.left_out() == ()


def test_what_an_outer_repository_runs_counts(tmp_path: Path) -> None:
    app = tmp_path / "outer/packages/app"
    app.mkdir(parents=True)
    (tmp_path / "outer/.git").mkdir()
    here = HereFolder(app)
    for name, setting in (("a", ""), ("b", "[core]\n\thooksPath = /opt/hooks\n")):
        (tmp_path / "outer/.git/config").write_text(setting)
        here.write(f"{name}.py", "x")
        here.write(f"{name}.csv", "x")
        assert names(here.apply(by_user=False)) == ({"a.py", "a.csv"} if name == "a" else {"b.csv"})


def test_many_links_that_lead_far_are_held_back_after_a_bounded_number_of_looks(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    original = ProjectFolder.entry_at
    monkeypatch.setattr(ProjectFolder, "entry_at", lambda self, path: looks.append(path) or original(self, path))
    code = (
        "import os\nfor n in range(100): os.symlink('src/../' * 500 + 'src', f'l{n}'); os.symlink('x/' * 2000, f'm{n}')"
    )
    monkeypatch.setattr(selection, "_MOST_STEPS", 1000)
    _, held = by_agent(project, f"{code}\nos.symlink('src', 'first')")
    assert "first" not in held and len(held) >= 190 and len(looks) < 10_000


def test_folders_above_a_file_are_looked_at_once_for_all_files_in_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched: list[str] = []
    matches = hidden._matches
    monkeypatch.setattr(hidden, "_matches", lambda path, name: matched.append(path) or matches(path, name))
    monkeypatch.setattr(
        selection, "_is_odd", lambda name, is_odd=selection._is_odd: matched.append(name) or is_odd(name)
    )
    here = HereFolder(project)
    folder = "/".join(f"folder{number}" for number in range(60))
    for number in range(50):
        here.write(f"{folder}/{number}.txt", "x")
    matched.clear()
    assert here.left_out() == () and 100 <= len(matched) < 600


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
    for path in ("a/githooks/pre-commit", "a/githooks/common.sh", "lib/linked.sh", "n.csv"):
        here.write(path, "x")
    assert applied(here) == ["n.csv"]


def test_a_new_link_of_an_odd_name_is_held_back_unless_it_leads_to_a_folder(project: Path) -> None:
    (project / "link").unlink()
    written, held = by_agent(
        project,
        "import os; os.symlink('src/tool.py', 'latexmkrc'); os.symlink('src', 'now'); os.symlink('run.sh', 'a.md')",
    )
    assert written == {"now", "a.md"} and held == {"latexmkrc"}
