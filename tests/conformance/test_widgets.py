"""Widgets over the wire, as a page speaks to them: the report, and the Stop button of a running cell."""

import pytest

VIEW = "application/vnd.jupyter.widget-view+json"
WIDGETS = "jupyter.widget"


def execute_as_a_page(client, code):
    """What JupyterLab sends: the cell has an id, and the user can be asked."""
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True, "stop_on_error": True}
    message = client.kc.session.msg("execute_request", content)
    message["metadata"] = {"cellId": "a-cell"}
    client.kc.shell_channel.send(message)
    return message["header"]["msg_id"]


def until(client, request, found):
    """Messages of a request up to the first that is looked for."""
    seen = []
    while True:
        message = client.kc.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != request:
            continue
        seen.append(message)
        if found(message):
            return seen


def button_of(messages, label):
    opened = [m["content"] for m in messages if m["msg_type"] == "comm_open"]
    (found,) = [o for o in opened if o["data"]["state"].get("description") == label]
    return found["comm_id"]


def shows_a_widget(message):
    return message["msg_type"] == "display_data" and VIEW in message["content"]["data"]


def click(client, comm_id, **header):
    data = {"method": "custom", "content": {"event": "click"}}
    return client.send("comm_msg", {"comm_id": comm_id, "data": data}, **header)


@pytest.fixture(scope="module")
def python(client_class):
    client = client_class("python3")
    client.run("%load_ext sandbox_kernel")
    yield client
    client.close()


@pytest.mark.slow
def test_a_long_cell_in_the_sandbox_kernel_has_a_stop_button_that_works(kernel):
    request = execute_as_a_page(kernel, "import time\nprint('running', flush=True)\ntime.sleep(60)")
    seen = until(kernel, request, shows_a_widget)
    click(kernel, button_of(seen, "Stop"))
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    rest = kernel.outputs(request)
    display_id = seen[-1]["content"]["transient"]["display_id"]
    emptied = [c for kind, c in rest if kind == "update_display_data" and c["transient"]["display_id"] == display_id]
    assert emptied[-1]["data"] == {"text/plain": ""}
    assert kernel.text("print('alive')") == "alive\n"


@pytest.mark.slow
def test_in_the_python_kernel_the_stop_button_works_although_the_shell_is_blocked(python):
    created = python.reply(python.send("create_subshell_request", {}, "control"), channel="control")
    request = execute_as_a_page(python, "%%sandbox\nimport time\nprint('running', flush=True)\ntime.sleep(60)")
    seen = until(python, request, shows_a_widget)
    click(python, button_of(seen, "Stop"), subshell_id=created["subshell_id"])
    assert python.reply(request)["ename"] == "KeyboardInterrupt"
    python.outputs(request)
    assert python.text("print('alive')") == "alive\n"


@pytest.mark.slow
def test_a_client_that_records_outputs_gets_no_panel(kernel):
    _, outputs = kernel.run("%%sandbox --quiet\nimport time\ntime.sleep(3)\nprint('done')")
    assert [kind for kind, _ in outputs] == ["stream"]


@pytest.mark.parametrize("name", ["kernel", "python"])
@pytest.mark.one_case
def test_the_report_is_shown_as_a_table_and_as_a_widget_that_survives_a_reload(name, request):
    client = request.getfixturevalue(name)
    reply, outputs = client.run("%sandbox report")
    assert reply["status"] == "ok"
    shown = [content["data"] for kind, content in outputs if kind == "display_data"]
    assert "<table" in shown[0]["text/html"]
    assert shown[1]["text/plain"] == "Capability report, to explore"
    model = shown[1][VIEW]["model_id"]
    comms = client.reply(client.kc.comm_info())["comms"]
    assert comms[model]["target_name"] == WIDGETS
    # A reloaded page asks the control comm for the state of every widget.
    opening = client.kc.session.msg("comm_open", {"comm_id": "reload", "target_name": f"{WIDGETS}.control", "data": {}})
    opening["metadata"] = {"version": "1.0.0"}
    client.kc.shell_channel.send(opening)
    asked = client.send("comm_msg", {"comm_id": "reload", "data": {"method": "request_states"}})
    states = [content["data"]["states"] for kind, content in client.outputs(asked) if kind == "comm_msg"]
    assert model in states[0]
