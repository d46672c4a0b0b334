"""A wrapped kernel that works on the notebook's folder (``wrap --here``), and ``sandbox-kernel changes``."""

import json
import os
import signal
import subprocess

import psutil
import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.commands.changes import _show
from sandbox_kernel.wrapped.folder_changes import ChangesAnswer


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """The user's folder, in which kernels are started, and a place for changes of its own."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    project = tmp_path / "project"
    project.mkdir()
    (project / "data.csv").write_text("a,b\n1,2\n")
    (project / ".env").write_text("TOKEN=secret\n")
    monkeypatch.chdir(project)
    return project


def changed(capsys):
    """What ``sandbox-kernel changes`` lists for this folder: the kind of change by path."""
    capsys.readouterr()
    assert main(["changes", "--json"]) == 0
    places = json.loads(capsys.readouterr().out)
    return {change["path"]: change["kind"] for place in places for change in place["changes"]}


@pytest.mark.slow
def test_a_kernel_sees_the_folder_as_it_is_and_changes_it_only_when_the_user_applies(wrap, start, own_state, capsys):
    kernel = start(wrap("python3", "--here"))
    assert kernel.text("print(open('data.csv').read(), end='')") == "a,b\n1,2\n"
    assert kernel.text("import os; print(os.path.exists('.env'))") == "False\n"
    _, outputs = kernel.run("open('data.csv', 'a').write('3,4\\n'); open('new.txt', 'w').write('new'); None")
    said = "".join(content["text"] for kind, content in outputs if kind == "stream")
    assert said.startswith("▣ not written to the folder yet: data.csv (modified), new.txt (created); see or write")
    assert (own_state / "data.csv").read_text() == "a,b\n1,2\n"
    assert not (own_state / "new.txt").exists()
    # The kernel lives: its launcher answers.
    assert changed(capsys) == {"data.csv": "modified", "new.txt": "created"}
    assert main(["changes", "--diff", "data.csv"]) == 0
    assert "+3,4" in capsys.readouterr().out
    assert main(["changes", "--apply", "data.csv"]) == 0
    assert (own_state / "data.csv").read_text() == "a,b\n1,2\n3,4\n"
    assert not (own_state / "new.txt").exists()
    assert main(["changes", "--discard"]) == 0
    assert changed(capsys) == {}
    assert kernel.text("print(sorted(os.listdir()), open('data.csv').read().count('\\n'))") == "['data.csv'] 3\n"


def test_a_wrapped_kernel_says_that_git_takes_a_hidden_file_for_deleted(wrap, start, own_state):
    for words in (["init", "-q"], ["add", "-f", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm1"]):
        subprocess.run(["git", *words], cwd=own_state, check=True)
    kernel = start(wrap("python3", "--here"))
    _, outputs = kernel.run("import subprocess; open('new.txt', 'w'); subprocess.run(['git', 'add', 'new.txt']); None")
    said = "".join(content["text"] for kind, content in outputs if kind == "stream")
    assert "▣ .env: hidden from programs, so git inside takes what it tracks there for deleted" in said


@pytest.mark.slow
def test_changes_outlive_a_killed_kernel_and_the_next_one_sees_them(wrap, start, own_state, capsys):
    name = wrap("python3", "--here")
    kernel = start(name)
    kernel.run("open('kept.txt', 'w').write('kept')")
    launcher = psutil.Process(kernel.pid)
    os.kill(kernel.pid, signal.SIGKILL)
    psutil.wait_procs([launcher], timeout=60)
    assert changed(capsys) == {"kept.txt": "created"}
    assert start(name).text("print(open('kept.txt').read())") == "kept\n"
    assert main(["changes", "--apply"]) == 0
    assert (own_state / "kept.txt").read_text() == "kept"


@pytest.mark.slow
def test_a_cell_that_uses_too_much_memory_is_told_and_leaves_nothing_in_the_folder(wrap, start, capsys):
    kernel = start(wrap("python3", "--here", "--memory", "256M", as_name="small-here"))
    kernel.run("open('whole.txt', 'w').write('whole')")
    request = kernel.kc.execute("open('half.txt', 'w').write('half'); x = bytearray(600 << 20); x[::4096] = x[::4096]")
    [error] = [content for kind, content in kernel.outputs(request, 60) if kind == "error"]
    assert (error["ename"], "256 MB" in error["evalue"]) == ("MemoryExceeded", True)
    assert kernel.reply(request)["ename"] == "MemoryExceeded"
    assert changed(capsys) == {"whole.txt": "created"}


@pytest.mark.slow
def test_two_kernels_of_one_folder_have_changes_of_their_own_and_one_must_be_named(wrap, start, own_state, capsys):
    name = wrap("python3", "--here")
    for number, kernel in enumerate((start(name), start(name))):
        kernel.run(f"open('{number}.txt', 'w').write('{number}')")
    assert changed(capsys) == {"0.txt": "created", "1.txt": "created"}
    assert main(["changes", "--apply"]) == 2
    assert "2 kernels changed this folder; name one with --of" in capsys.readouterr().err
    assert main(["changes", "--json"]) == 0
    places = {place["changes"][0]["path"]: place["name"] for place in json.loads(capsys.readouterr().out)}
    assert main(["changes", "--apply", "--of", places["1.txt"]]) == 0
    assert [path.name for path in own_state.glob("*.txt")] == ["1.txt"]


def test_a_home_folder_is_refused_with_what_to_do(wrap, capsys):
    assert main(["wrap", "python3", "--here", os.path.expanduser("~")]) == 2
    assert "is a whole home or system folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_provisioner_knows_it_and_refuses_a_home_folder_before_anything_starts(spec, start, own_state):
    kernel = start(spec("provided", provisioned={"here": "."}))
    assert kernel.text("import os; print(os.listdir())") == "['data.csv']\n"
    os.chdir(os.path.expanduser("~"))
    with pytest.raises(RuntimeError, match="is a whole home or system folder"):
        start("provided")


def test_the_list_says_which_folder_a_kernel_works_on_and_a_name_is_no_option_of_its_line(wrap, capsys):
    _show(ChangesAnswer(left_out=("--folder=other", "a b")))
    assert capsys.readouterr().out.endswith("--apply ./--folder=other 'a b'\n")
    wrap("python3", "--here", as_name="listed-here")
    assert main(["wrapped"]) == 0
    assert "works on: the folder of the notebook, copy-on-write (sandbox-kernel changes)" in capsys.readouterr().out


def test_what_is_applied_is_what_the_diff_showed_although_a_thread_of_the_kernel_goes_on(
    wrap, start, own_state, capsys
):
    kernel = start(wrap("python3", "--here"))
    kernel.run(
        "import itertools, os, threading\n"
        "def write():\n"
        "    for number in itertools.count():\n"
        "        open('next', 'w').write(f'{number}\\n'); os.replace('next', 'count.txt')\n"
        "threading.Thread(target=write, daemon=True).start()"
    )
    assert main(["changes", "--diff", "count.txt"]) == 0
    shown = [line[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("+") and line[1:].isdigit()]
    assert main(["changes", "--apply", "count.txt"]) == 0
    assert [(own_state / "count.txt").read_text().strip()] == shown


def test_changes_of_a_later_cell_are_not_applied_and_a_look_at_some_is_none_at_the_others(
    wrap, start, own_state, capsys
):
    kernel = start(wrap("python3", "--here"))
    kernel.run("for n in 'abc': open(n + '.py', 'w').write('harmless')")
    assert main(["changes", "--diff"]) == 0
    kernel.run("open('b.py', 'w').write('evil')")
    kernel.close()
    for look in (["changes"], ["changes", "--diff", "a.py"], ["changes", "--discard", "c.py"]):
        assert main(["changes", "--apply"]) == 2
        assert "not those that you were shown" in capsys.readouterr().err
        assert not (own_state / "b.py").exists()
        if look != ["changes"]:
            assert main(look) == 0
    assert main(["changes", "--apply"]) == 2
    assert main(["changes", "--diff"]) == 0
    assert main(["changes", "--apply"]) == 0
    assert (own_state / "b.py").read_text() == "evil" and not (own_state / "c.py").exists()
