"""What each ``%sandbox`` line answers."""

import pytest

from sandbox_kernel import FsChange, InvalidRequest, SessionError
from sandbox_kernel.notebook.cell_options import CellOptions
from sandbox_kernel.notebook.line_commands import _COMMANDS, Desk, run_command
from sandbox_kernel.notebook.option_table import COMMAND_NAMES
from sandbox_kernel.notebook.options import parse_line
from sandbox_kernel.notebook.render import ReportPanel


class Session:
    def __init__(self):
        self.done = []

    def undo(self, n):
        self.done.append(("undo", n))

    def restart(self):
        self.done.append("restart")

    def checkpoints(self):
        return ["cell 1\x1b[2J", "cell 2"]


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

    def session(self, options):
        return self._session

    def box(self, options):
        return self

    def report(self):
        return Report()


def answer(line, runner=None, defaults=None, files=()):
    messages = run_command(parse_line(line), Desk(runner or Runner(), defaults or CellOptions(), files))
    return messages[0].data["text/plain"]


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


def test_files_lists_what_the_last_cell_changed_with_names_made_harmless():
    text = answer("files", files=(FsChange(path="a\x1b[2J\nb.csv", kind="created", size=2048),))
    assert "a b.csv" in text
    assert "created, 2K" in text
    assert answer("files") == "The last cell changed no files."


def test_session_commands_reach_the_session():
    session = Session()
    assert answer("undo 3", Runner(session)) == "Took back the last 3 cells."
    answer("restart", Runner(session))
    assert session.done == [("undo", 3), "restart"]
    assert "\x1b" not in answer("checkpoints", Runner(session))


@pytest.mark.parametrize("line", ["undo", "restart", "checkpoints", "save x"])
def test_without_a_session_they_say_how_one_begins(line):
    with pytest.raises(SessionError, match="a session begins with the first cell"):
        answer(line)


def test_saving_and_loading_are_refused_where_there_is_no_such_thing():
    with pytest.raises(InvalidRequest, match="cannot be saved"):
        answer("save work", Runner(Session()))
    with pytest.raises(InvalidRequest, match="cannot be loaded"):
        answer("load work")


def test_the_report_is_a_static_table_first_and_then_a_widget():
    static, panel = run_command(parse_line("report"), Desk(Runner(), CellOptions()))
    assert static.data["text/plain"] == "the report"
    assert "\\href" not in static.data["text/html"]
    assert panel == ReportPanel({"lines": []})
