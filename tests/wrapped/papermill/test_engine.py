"""The papermill engine: any notebook in a jail, with limits from papermill's own command line."""

import json

import nbformat
import papermill
import psutil
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_notebook
from papermill.cli import papermill as papermill_cli

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.notebook.options.option_table import BY_SETTING
from sandbox_kernel.policy.sandbox_policy import parse_mount
from sandbox_kernel.wrapped.papermill.engine import collect, from_pairs, start_variables
from sandbox_kernel.wrapped.wrap_options import LAUNCHER, WrapOptions


@pytest.fixture
def notebook(tmp_path):
    def write(*cells, kernel="python3", **metadata):
        made = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        made.metadata.update(kernelspec={"name": kernel, "display_name": "p", "language": "python"}, **metadata)
        nbformat.write(made, tmp_path / "in.ipynb")
        return str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb")

    return write


def papermill_command(*words):
    """What papermill's command line does, without the seconds that its modules take in a new process."""
    return CliRunner().invoke(papermill_cli, ["--engine", "sandbox", "--no-progress-bar", *words])


def shown(path):
    """What each cell of a notebook printed."""
    cells = nbformat.read(path, 4).cells
    return ["".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in cells]


@pytest.fixture
def all_ended():
    """Checks that every process which the test started has ended."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert psutil.wait_procs(left, timeout=60)[1] == []


@pytest.mark.slow
def test_a_notebook_runs_in_a_jail_gets_its_parameters_and_its_kernel_ends(notebook, all_ended):
    source, target = notebook("import os\nprint(os.getcwd(), os.path.exists('/etc/shadow'), n)")
    done = papermill.execute_notebook(source, target, parameters={"n": 3}, engine_name="sandbox", progress_bar=False)
    assert done.cells[-1].outputs[0].text == "/box False 3\n"


@pytest.mark.slow
def test_the_command_line_sets_the_time_limit_and_the_notebook_says_what_ended_it(notebook):
    source, target = notebook("print('first')", "import time; time.sleep(100)", "print('never')")
    assert papermill_command("--execution-timeout", "2", source, target).exit_code != 0
    outputs = nbformat.read(target, 4).cells
    told = str([cell.get("outputs") for cell in outputs])
    assert "limit of 2 s" in told and "KeyboardInterrupt" in told and "never" not in told


@pytest.mark.slow
def test_memory_that_ends_the_kernel_is_said_in_the_output_notebook(notebook):
    source, target = notebook("x = b'x' * 900_000_000")
    with pytest.raises(papermill.PapermillExecutionError, match=r"MemoryExceeded|MemoryError"):
        papermill.execute_notebook(source, target, engine_name="sandbox", memory="300M", progress_bar=False)


@pytest.mark.parametrize("settings", [{"mounts": ["/:/host"]}, {"timeout": "100h"}, {"memory": "100M"}])
def test_settings_in_the_metadata_of_a_notebook_are_refused(notebook, settings):
    source, target = notebook("1", sandbox_kernel=settings)
    with pytest.raises(InvalidRequest, match="only who runs it sets"):
        papermill.execute_notebook(source, target, engine_name="sandbox", progress_bar=False)


@pytest.mark.slow
def test_the_command_line_gives_memory_and_folders_and_a_notebook_with_such_parameters_gets_none(notebook, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("seen")
    read = "import os\nprint(open('/data/a.txt').read() if os.path.exists('/data/a.txt') else 'nothing')"
    asks = {"parameters": {"sandbox_mounts": f"{tmp_path}/data:/data"}}
    source, target = notebook(read, papermill=asks)
    done = papermill_command(
        "-p", "sandbox_mounts", f"{tmp_path}/data:/data", "-p", "sandbox_memory", "600M", source, target
    )
    assert done.exit_code == 0, done.output
    assert shown(target)[-1] == "seen\n"
    assert papermill_command(source, target).exit_code == 0
    assert shown(target)[-1] == "nothing\n"


def test_parameters_that_begin_with_sandbox_are_settings_and_an_unknown_one_is_told():
    pairs = [("n", "1"), ("sandbox_mounts", "/a:/a"), ("sandbox_mounts", "/b:/b"), ("sandbox_memory", "1G")]
    assert from_pairs(pairs) == {"mounts": ["/a:/a", "/b:/b"], "memory": "1G"}
    with pytest.raises(InvalidRequest, match="there is no setting 'sandbox_memry'"):
        from_pairs([("sandbox_memry", "1G")])


def test_settings_that_are_not_typed_one_by_one_are_refused(notebook):
    done = papermill_command("-y", "{sandbox_memory: 1G, n: 1}", "-p", "sandbox_timeout", "9s", *notebook("print(1)"))
    assert isinstance(done.exception, InvalidRequest) and "'sandbox_memory' came with -y" in str(done.exception)


def test_the_settings_of_a_run_are_the_start_options_of_a_locked_kernel():
    started = start_variables(
        collect({"memory": "2G", "mounts": ["/a b:/a"]}, 60),
        {"SANDBOX_KERNEL_OPTIONS": "--memory 9G --policy strict"},
    )
    assert started == {
        "SANDBOX_KERNEL_LINES": "locked",
        "SANDBOX_KERNEL_OPTIONS": "",
        "SANDBOX_KERNEL_SPEC_OPTIONS": "--timeout 1m --memory 2G --mount '/a b:/a' --policy strict",
    }
    for given, words in (
        ({"record": "/x"}, "no setting 'record'"),
        ({"memory": "much"}, "--memory 'much'"),
        ({"mounts": [f"/{number}{'a' * 80}:/{number}" for number in range(60)]}, "at most 4096"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            start_variables(given, {})
    with pytest.raises(PolicyViolation, match="neither a preset nor a file"):
        start_variables({"policy": "strickt"}, {})


def test_no_line_of_a_notebook_takes_off_what_its_caller_set_or_has_more(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_KERNEL_LINES", "all")
    refused = (
        "%sandbox --policy standard",
        "%%sandbox --policy standard\n1",
        "%sandbox --memory 301M",
        "%%sandbox --fresh --memory 301M\n1",
        "%sandbox --timeout 21s",
        "%sandbox reset --timeout 21s",
        "%sandbox restart --keep --memory 301M",
        "%sandbox --processes 65",
        f"%sandbox --mount {tmp_path}:/h:rw",
        "%%sandbox --allow-net example.org\n1",
        "%sandbox save other",
    )
    lowered = ("%sandbox --timeout 19s --memory 299M", "%sandbox", "%sandbox reset", "%sandbox")
    source, target = notebook(*refused, *lowered, kernel="sandbox")
    made = nbformat.read(source, 4)
    for cell in made.cells:
        cell.metadata["tags"] = ["raises-exception"]
    nbformat.write(made, source)
    given = {"policy": "strict", "memory": "300M"}
    with pytest.raises(papermill.PapermillExecutionError, match="give themselves no rights"):
        papermill.execute_notebook(
            source, target, engine_name="sandbox", execution_timeout=20, progress_bar=False, **given
        )
    outputs = [str(cell.outputs) for cell in nbformat.read(target, 4).cells if cell.cell_type == "code"]
    for line, told in zip(refused, outputs, strict=False):
        assert "give themselves no rights" in told and "-p sandbox_mounts" in told, line
    first, low, reset, again = outputs[len(refused) :]
    assert "--timeout 19s --memory 299M --policy strict" in low
    assert "--timeout 20s --memory 300M --policy strict" in again
    assert "no rights" not in first + reset


def test_the_caller_gives_rights_also_to_a_kernel_whose_lines_give_none(notebook, tmp_path, monkeypatch, all_ended):
    monkeypatch.setenv("SANDBOX_KERNEL_LINES", "limits")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("shown")
    source, target = notebook("print(open('/data/file').read())", kernel="sandbox")
    mounts = [f"{tmp_path}/data:/data"]
    papermill.execute_notebook(source, target, engine_name="sandbox", mounts=mounts, progress_bar=False)
    assert shown(target) == ["shown\n"]


def test_of_the_settings_of_wrapped_kernels_only_the_two_limits_give_no_right():
    assert {name for name, option in BY_SETTING.items() if option.harmless} == {"memory", "timeout"}


@pytest.mark.parametrize("own", ["wrapped", "installed", "plain"])
def test_a_notebook_does_not_choose_a_kernel_with_rights(notebook, tmp_path, monkeypatch, own):
    from sandbox_kernel.notebook.kernelspec import install
    from sandbox_kernel.wrapped.papermill.engine import SandboxEngine

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    mount = f"{tmp_path}:/p"
    for name, words in (("broad", (mount,)), ("narrow", ())):
        if own != "installed":
            made = WrapOptions(command=("x", "--y"), memory_mb=300, mounts=tuple(map(parse_mount, words)))
            options = ["-m", LAUNCHER, "-f", "{connection_file}", *made.to_arguments()]
            folder = tmp_path / "data" / "kernels" / name
            folder.mkdir(parents=True)
            spec = {"argv": ["python", *options], "display_name": name, "language": "python"}
            if own == "plain":  # its variables may be secrets
                spec |= {"argv": ["python", "{connection_file}"], "env": {"TOKEN": "x"} if words else {}}
            (folder / "kernel.json").write_text(json.dumps(spec))
        else:
            install(name, name, None, options=f"--mount={mount}" if words else None, lines="locked")
    broad, narrow = (nbformat.read(notebook("1", kernel=name)[0], 4) for name in ("broad", "narrow"))
    with pytest.raises(InvalidRequest, match="-k broad"):
        SandboxEngine.nb_kernel_name(broad)
    assert SandboxEngine.nb_kernel_name(broad, "broad") == "broad"
    assert SandboxEngine.nb_kernel_name(narrow) == "narrow"
