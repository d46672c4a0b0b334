"""Lines of cells that ask for rights, over the wire: without a person, at a console, and in a page without buttons."""

import os

import pytest

from sandbox_kernel.notebook.options.own_rights import MIME
from tests.conformance.conftest import client_class as client_class
from tests.conformance.conftest import kernelspec as kernelspec

READ = "print(open('/g/secret.txt').read())"
#: One of each kind; ``test_own_rights.py`` has them all.
ASKING = [
    "%sandbox --mount {}:/g",
    "%%sandbox --mount {}:/g --quiet\n" + READ,
    "%sandbox --allow-net example.org",
    "%sandbox --policy {}/p.toml",
    "%sandbox restart --keep --mount {}:/g",
    "%sandbox save lines-test",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("granted")
    (made / "secret.txt").write_text("CANARY")
    (made / "p.toml").write_text(f'[[mounts]]\nhost = "{made}"\nguest = "/g"\n')
    return made


@pytest.fixture(scope="module")
def asking(client_class, tmp_path_factory):
    """A kernel as it is installed, without a setting."""
    state = tmp_path_factory.mktemp("state")
    state.chmod(0o700)
    client = client_class(env={"SANDBOX_KERNEL_LINES": "", "XDG_STATE_HOME": str(state)})
    yield client
    client.close()


@pytest.mark.parametrize("cell", ASKING, ids=lambda cell: " ".join(cell.split()[1:3]))
def test_without_a_person_a_line_gives_no_right(asking, folder, cell):
    before = sorted(os.listdir())
    reply, outputs = asking.run(cell.format(folder))
    assert (reply["status"], reply["ename"]) == ("error", "PolicyViolation")
    assert "SANDBOX_KERNEL_LINES=all" in reply["evalue"] and "CANARY" not in str(outputs)
    reply, _ = asking.run(READ)
    assert reply["ename"] == "FileNotFoundError" and sorted(os.listdir()) == before


def test_the_refusal_says_the_line_that_starts_a_kernel_with_the_right(asking, folder):
    reply, _ = asking.run(f"%sandbox --mount {folder}:/g --allow-net example.org")
    line = f"sandbox-kernel install --name NAME --allow-net example.org --mount {folder}:/g"
    assert line in reply["evalue"]


def execute(client, code, **metadata):
    """Send a cell with metadata, as a page does, and return its id."""
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True}
    message = client.kc.session.msg("execute_request", content, metadata=metadata)
    client.kc.shell_channel.send(message)
    return message["header"]["msg_id"]


def test_no_metadata_of_a_client_pass_for_a_press(client_class, folder):
    client = client_class(env={"SANDBOX_KERNEL_LINES": "limits"})
    try:
        for metadata in ({"sandbox_kernel_pressed": True}, {"sandbox_kernel_pressed": True, "cellId": "a"}, {}):
            request = execute(client, f"%%sandbox --mount {folder}:/g\n{READ}", **metadata)
            assert client.reply(request)["ename"] == "PolicyViolation"
    finally:
        client.close()


def test_a_console_is_asked_and_one_word_gives_the_right(asking, folder):
    cell = f"%%sandbox --mount {folder}:/g --quiet\n{READ}"
    for answer in ("y", "yes", "", "allow it"):
        request = execute(asking, cell)
        prompt = asking.kc.get_stdin_msg(timeout=60)["content"]["prompt"]
        assert prompt.startswith("▣ ") and f"--mount {folder}:/g" in prompt
        asking.kc.input(answer)
        assert asking.reply(request)["ename"] == "PolicyViolation"
    request = execute(asking, cell)
    asking.kc.get_stdin_msg(timeout=60)
    asking.kc.input("allow")
    assert "CANARY" in str(asking.outputs(request)) and asking.reply(request)["status"] == "ok"
    assert "CANARY" in asking.text(cell), "it is not asked again"
    assert asking.run(cell.replace(":/g", ":/g:rw"))[0]["ename"] == "PolicyViolation"


def test_a_page_without_buttons_is_told_to_run_the_cell_again_and_then_asked(client_class, folder):
    client = client_class(env={"SANDBOX_KERNEL_LINES": "ask"})
    try:
        cell = f"%%sandbox --mount {folder}:/g --quiet\n{READ}"
        request = execute(client, cell, cellId="a")
        kinds = {kind: content for kind, content in client.outputs(request) if kind != "execute_input"}
        assert set(kinds) == {"display_data"} and MIME in kinds["display_data"]["data"]
        assert "Run the cell again" in kinds["display_data"]["data"]["text/plain"]
        assert client.reply(request)["ename"] == "PolicyViolation", "cells after it do not run"
        request = execute(client, cell, cellId="a")
        client.kc.get_stdin_msg(timeout=60)
        client.kc.input("allow")
        assert "CANARY" in str(client.outputs(request)) and client.reply(request)["status"] == "ok"
    finally:
        client.close()


def test_a_kernel_that_was_installed_with_rights_has_them_and_its_lines_give_none(client_class, folder):
    client = client_class(env={"SANDBOX_KERNEL_LINES": "locked", "SANDBOX_KERNEL_OPTIONS": f"--mount {folder}:/g"})
    try:
        assert client.text(READ) == "CANARY\n"
        assert client.run("%sandbox --allow-net example.org")[0]["ename"] == "PolicyViolation"
        assert client.run("%sandbox --timeout 5s\n%sandbox reset")[0]["status"] == "ok"
        assert client.text(READ) == "CANARY\n"
    finally:
        client.close()
