"""What each ``%sandbox`` line answers."""

from types import SimpleNamespace

import pytest

from sandbox_kernel import ExecResult, FsChange, InvalidRequest, SessionError
from sandbox_kernel.notebook.line_commands import _COMMANDS, LineCommands, run_command
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.option_table import COMMAND_NAMES
from sandbox_kernel.notebook.options.parse_cell import parse_line
from sandbox_kernel.notebook.render import ReportPanel


class Session:
    def __init__(self):
        self.done = []

    def undo(self, n):
        self.done.append(("undo", n))
        return ExecResult(notes=(f"the last {n} cells taken back", "2 variables kept"))


class Report:
    def _repr_html_(self):
        return "<table><td>$\\href{javascript:alert(1)}{x}$</td></table>"

    def __str__(self):
        return "the report"

    def to_dict(self):
        return {"lines": []}


class Runner:
    def __init__(self, session=None):
        self._session = session
        self.adopted = []

    @property
    def sessions(self):
        return self

    def find(self, options):
        return self._session

    def end(self, session):
        session.done.append("ended")
        return "python session web"

    def box(self, options):
        return self

    def report(self):
        return Report()

    def diff(self):
        return (FsChange(path="kept.txt", kind="created", size=5),)

    def read_file(self, path):
        return b"hello"


def run(line, sandboxes=None, defaults=None, files=()):
    defaults = defaults or CellOptions()
    state = SimpleNamespace(sandboxes=sandboxes or Runner(), defaults=defaults, files=files)
    return run_command(parse_line(line), LineCommands(state, defaults))


def answer(*given, **more):
    return run(*given, **more)[0].data["text/plain"]


def test_every_command_of_the_table_is_there():
    assert set(_COMMANDS) == {*COMMAND_NAMES, "show", "defaults"}


def test_show_writes_the_defaults_as_one_would_type_them():
    assert answer("") == "%sandbox --timeout 30s"
    assert answer("", defaults=CellOptions(memory_mb=64)) == "%sandbox --memory 64M"


def test_the_policy_says_what_is_allowed():
    text = answer("policy")
    assert "policy standard" in text
    assert "network" in text
    options = parse_line("--policy strict --allow-net example.org:8443 --mount data:/data:rw").options
    text = answer("policy", defaults=options)
    assert "example.org:8443" in text
    assert "data at /data (rw)" in text
    assert "may not be started" in text


def test_files_lists_the_folder_and_the_last_cell_with_names_made_harmless():
    text = answer(
        "files", files=(FsChange(path="kept.txt", kind="created", size=5), FsChange(path="a", kind="deleted"))
    )
    assert "kept.txt  5 bytes, created by the last cell, hello" in text
    assert "a         deleted by the last cell" in text


def test_without_files_it_says_where_they_would_be(monkeypatch):
    monkeypatch.setattr(Runner, "diff", lambda self: ())
    assert "/box" in answer("files")


def test_session_commands_reach_the_session():
    session = Session()
    assert answer("undo 3", Runner(session)) == "the last 3 cells taken back\n2 variables kept"
    assert answer("restart", Runner(session)).startswith("The python session web has ended ")
    assert session.done == [("undo", 3), "ended"]


@pytest.mark.parametrize("line", ["undo", "restart", "tree", "save x"])
def test_without_a_session_they_say_how_one_begins(line):
    with pytest.raises(SessionError, match="a session begins with the first cell"):
        answer(line)


def test_saving_is_refused_where_there_is_no_such_thing():
    with pytest.raises(InvalidRequest, match=r"cannot be saved.*to save a file of the work folder, use %sandbox files"):
        answer("save work", Runner(Session()))


def test_the_report_is_a_static_table_first_and_then_a_widget():
    static, panel = run("report")
    assert static.data["text/plain"] == "the report"
    assert "\\href" not in static.data["text/html"]
    assert panel == ReportPanel({"lines": []})
