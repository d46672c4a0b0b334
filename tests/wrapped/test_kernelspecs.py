"""The commands ``wrap``, ``wrapped`` and ``unwrap``, and the options they write."""

import json
from pathlib import Path
from string import Template

import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.notebook.options.option_table import BY_SETTING
from sandbox_kernel.policy import Mount
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.wrapped.kernelspecs import wrapped_kernels
from sandbox_kernel.wrapped.wrap_options import INNER_ENV, WrapOptions, from_arguments


def test_a_wrapped_kernel_is_listed_with_what_it_may_touch_and_removed(wrap, tmp_path, monkeypatch, capsys):
    # A folder of its own: other tests of this process have wrapped the same kernel.
    jupyter_folder = tmp_path / "jupyter"
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(jupyter_folder))
    wrap("python3", "--memory", "1G", "--timeout", "30s", "--mount", f"{tmp_path}:/data", "--allow-net", "example.org")
    assert main(["wrapped"]) == 0
    text = capsys.readouterr().out
    for words in ("sandbox-python3", "wraps: python3", f"{tmp_path} at /data", "example.org", "1024 MB", "30 s"):
        assert words in text
    assert main(["wrapped", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["memory"] == "1024 MB"
    assert main(["unwrap", "python3"]) == 0
    assert not (jupyter_folder / "kernels" / "sandbox-python3").exists()


def test_the_kernelspec_starts_the_launcher_and_is_interrupted_by_message(wrap, jupyter_folder):
    name = wrap("python3", "--display-name", "Python, walled", as_name="mine")
    spec = json.loads((jupyter_folder / "kernels" / name / "kernel.json").read_text())
    assert spec["argv"][1:4] == ["-P", "-m", "sandbox_kernel.wrapped"]
    assert spec["interrupt_mode"] == "message"
    assert spec["display_name"] == "Python, walled"
    assert "env" not in spec


def test_variables_of_a_kernelspec_are_for_the_kernel_and_not_for_the_launcher(spec, wrap, jupyter_folder):
    original = spec("with-env", env={"LD_PRELOAD": "/x.so", "A": "b=c", "TOKEN": "5$HOME"})
    (jupyter_folder / "kernels" / original / "kernel.json").chmod(0o600)
    name = wrap(original)
    file = jupyter_folder / "kernels" / name / "kernel.json"
    assert file.stat().st_mode & 0o077 == 0
    written = json.loads(file.read_text())
    assert list(written["env"]) == [INNER_ENV]
    assert "TOKEN" not in str(written["argv"]), "every user can read a command line"
    given = {name: Template(value).safe_substitute() for name, value in written["env"].items()}  # as Jupyter does
    _, options = from_arguments(written["argv"][4:], given)
    assert options.env == {"LD_PRELOAD": "/x.so", "A": "b=c", "TOKEN": "5$HOME"}
    assert [kernel.options.env for kernel in wrapped_kernels() if kernel.name == name] == [options.env]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wrap", "no-such-kernel"], "there is no kernel 'no-such-kernel'; installed here:"),
        (["wrap", "python3", "--policy", "no-such-file.toml"], "no-such-file.toml"),
        (["wrap", "python3", "--memory", "1M"], "at least 64"),
        (["wrap", "sandbox"], "Sandbox kernel itself"),
        (["wrap", "python3", "--mount", "data"], "--mount 'data': a part is missing"),
        (["unwrap", "no-such-kernel"], "there is no wrapped kernel 'no-such-kernel'"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(arguments, words, jupyter_folder, capsys):
    before = sorted((jupyter_folder / "kernels").glob("*")) if (jupyter_folder / "kernels").exists() else []
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert sorted((jupyter_folder / "kernels").glob("*")) == before


def test_a_folder_that_is_not_there_is_told_when_a_kernel_is_wrapped_and_not_first_in_its_cells(wrap, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    wrap("python3", "--mount", f"{tmp_path}/there:/a", "--mount", f"{tmp_path}/missing:/b", as_name="with-mounts")
    told = capsys.readouterr().err
    assert f"'{tmp_path}/missing' is not there; the kernel does not start until it is" in told
    assert "/there'" not in told


def test_a_wrapped_kernel_is_not_wrapped_again(wrap, capsys):
    name = wrap("python3")
    assert main(["wrap", name]) == 2
    assert "is wrapped already" in capsys.readouterr().err


def test_options_survive_the_command_line():
    options = WrapOptions(
        command=("/usr/bin/R", "--slave", "-e", "IRkernel::main()", "--args", "{inner_connection_file}"),
        env={"A": "1", "B": "x=y --z"}, resource_dir="/opt/k", interrupt="message", policy="data",
        mounts=(Mount("/a", "/b", writable=True),), allow_net=(parse_rule("example.org:443"),), memory_mb=512,
        timeout_s=2.5, enforcer="bubblewrap", record="/r.jsonl", here="/p",
    )  # fmt: skip
    assert set(options.settings()) == set(BY_SETTING)
    assert from_arguments(["-f", "c.json", *options.to_arguments()], options.to_variables()) == ("c.json", options)


def test_a_wrapped_kernel_in_a_page_has_a_pages_time_and_memory_where_it_was_given_none():
    words = ["-f", "c.json", '{"memory": "1G"}', "R"]
    _, options = from_arguments(words, {"JPY_SESSION_NAME": "/a.ipynb"})
    assert (options.memory_mb, options.timeout_s) == (1024, 600)
    assert from_arguments(words, {})[1].timeout_s is None


def test_a_kernelspec_of_the_form_with_numbers_still_starts_its_kernel():
    text = (
        '{"policy": "data", "mounts": ["/a:/b"], "domains": ["example.org"], "memory_mb": 512, "timeout_s": 90.0, '
        '"enforcer": "auto", "interrupt": "message", "resource_dir": "/k"}'
    )
    _, options = from_arguments(["-f", "c.json", text, "R", "--args"], {})
    assert options == WrapOptions(
        command=("R", "--args"), policy="data", mounts=(Mount("/a", "/b"),), allow_net=(parse_rule("example.org"),),
        memory_mb=512, timeout_s=90, interrupt="message", resource_dir="/k",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        '{"mounts": ["/a"]}',
        '{"mounts": [5]}',
        '{"memory": "1M"}',
        '{"memory": null}x',
        '{"memory_mb": "x"}',
        '{"memory": 600}',
        '{"here": ["."]}',
        '{"here": []}',
        '{"gpu": "all"}',
        "[]",
    ],
)
def test_a_launcher_takes_no_setting_that_the_table_does_not_have_or_refuses(text):
    with pytest.raises(InvalidRequest, match="wrap it anew"):
        from_arguments(["-f", "c.json", text, "python"], {})


def test_a_kernel_wrapped_with_variables_on_its_command_line_says_to_wrap_it_anew():
    with pytest.raises(InvalidRequest, match=r"of an earlier version.*wrap it anew"):
        from_arguments(["-f", "c.json", '{"env": {"TOKEN": "1"}}', "python"], {})


def test_options_are_checked():
    with pytest.raises(InvalidRequest, match="list of words"):
        WrapOptions(command=())
    with pytest.raises(InvalidRequest, match="interrupt mode"):
        WrapOptions(command=("x",), interrupt="shout")


def test_the_folder_of_a_relative_policy_file_is_the_one_where_it_was_wrapped(
    wrap, jupyter_folder, tmp_path, monkeypatch
):
    Path(tmp_path, "p.toml").write_text("allowProcessSpawn = true\n")
    monkeypatch.chdir(tmp_path)
    name = wrap("python3", "--policy", "p.toml", as_name="with-policy")
    spec = json.loads((jupyter_folder / "kernels" / name / "kernel.json").read_text())
    assert from_arguments(spec["argv"][4:], {})[1].policy == f"{tmp_path}/p.toml"


def test_a_kernel_that_is_not_wrapped_does_not_lose_its_name(jupyter_folder, capsys):
    place = jupyter_folder / "kernels" / "own"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps({"argv": ["python3", "{connection_file}"], "display_name": "O"}))
    for arguments in (["python3", "--name", "own"], ["own", "--name", "own"], ["python3", "--name", "Python3"]):
        assert main(["wrap", *arguments]) == 2
        assert "is the name of a kernel that is not wrapped" in capsys.readouterr().err
    assert json.loads((place / "kernel.json").read_text())["display_name"] == "O"


def test_the_list_names_the_folder_of_the_notebook_and_not_its_own(wrap, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.chdir(tmp_path)
    wrap("python3", "--policy", "data")
    capsys.readouterr()
    assert main(["wrapped"]) == 0
    text = capsys.readouterr().out
    assert "works on: the folder of the notebook\n" in text
    assert "files: the folder of the notebook (readOnly)" in text


def test_list_is_answered_with_the_name_of_the_command(capsys):
    with pytest.raises(SystemExit):
        main(["list"])
    assert "did you mean sandbox-kernel wrapped?" in capsys.readouterr().err
