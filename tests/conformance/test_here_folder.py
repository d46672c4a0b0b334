"""Which folder ``--here`` and the hints mean, where the front end does not tell the path of the notebook."""

import os

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which kernels are started by a front end that sets no ``JPY_SESSION_NAME``."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    project = tmp_path / "project"
    project.mkdir()
    (project / "rows.csv").write_text("a,b")
    monkeypatch.chdir(project)
    return project


def told(client, code):
    reply, outputs = client.run(code, stop_on_error=False)
    return reply["status"], str(outputs)


@pytest.mark.parametrize("name", ["sandbox", "python3"])
def test_a_front_end_that_does_not_tell_the_path_had_no_folder(start_kernel, folder, name):
    client = start_kernel(name)
    magic = ""
    if name == "python3":
        client.run("%load_ext sandbox_kernel")
        magic = "%%sandbox\n"
    # The hint names the line, and the line does what it says.
    status, shown = told(client, f"{magic}open('rows.csv')")
    assert status == "error"
    assert "rows.csv is beside the notebook" in shown
    assert "%sandbox restart --keep --here" in shown
    status, shown = told(client, "%sandbox restart --keep --here")
    assert status == "ok", shown
    status, shown = told(client, f"{magic}print(open('rows.csv').read()); open('made.txt', 'w').close()")
    assert (status, "a,b" in shown) == ("ok", True), shown
    assert os.listdir(folder) == ["rows.csv"]
    status, shown = told(client, "%sandbox apply")
    assert status == "ok", shown
    assert sorted(os.listdir(folder)) == ["made.txt", "rows.csv"]
