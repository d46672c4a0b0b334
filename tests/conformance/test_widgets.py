"""What a page is told beside outputs: how far a running cell is, and the widget of the report."""

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


@pytest.fixture(scope="module")
def python(client_class):
    client = client_class("python3")
    client.run("%load_ext sandbox_kernel")
    yield client
    client.close()


@pytest.mark.parametrize(("name", "line"), [("kernel", ""), ("python", "%%sandbox\n")])
@pytest.mark.slow
def test_a_long_cell_tells_a_page_how_far_it_is_and_an_interrupt_stops_it(name, line, request):
    client = request.getfixturevalue(name)
    asked = execute_as_a_page(client, f"{line}import time\nprint('running', flush=True)\ntime.sleep(60)")
    told = until(client, asked, lambda message: message["msg_type"] == "sandbox_progress")[-1]["content"]
    assert (told["cell"], told["timeout_s"]) == ("a-cell", 30.0)
    assert 2 <= told["elapsed_s"] < 30 and 0 < told["memory_bytes"] < told["memory_limit_bytes"] == 512 << 20
    client.km.interrupt_kernel()
    assert client.reply(asked)["ename"] == "KeyboardInterrupt"
    assert [kind for kind, _ in client.outputs(asked) if kind.endswith("display_data")] == []
    assert client.text("print('alive')") == "alive\n"


@pytest.mark.slow
def test_a_client_that_records_outputs_is_told_of_no_progress(kernel):
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
