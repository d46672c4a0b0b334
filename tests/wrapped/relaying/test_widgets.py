"""Widgets and figures of a wrapped ipykernel: their comms pass our gate, and what a hostile cell sends does not."""

import importlib.util

import pytest

from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY
from tests.conftest import need

PAGE = "page-1"
SLIDER = "import ipywidgets\nslider = ipywidgets.IntSlider(3)\nslider.observe(lambda c: print('now', c.new), 'value')\nslider"
SEND = """
kernel = get_ipython().kernel
def send(kind, content, **extra):
    kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent(), **extra)
"""


@pytest.fixture(scope="module")
def page(kernel):
    """A page of ours is connected to the kernel."""
    need(importlib.util.find_spec("ipywidgets"), "ipywidgets is not installed")
    kernel.outputs(kernel.send("comm_open", {"comm_id": PAGE, "target_name": "sandbox-kernel.frames", "data": {}}))
    return kernel


def say(kernel, **data):
    """Send a message of the page to its widgets, and return what the page got until it was handled."""
    kernel.send("comm_msg", {"comm_id": PAGE, "data": data})
    got = []
    while not got or got[-1]["type"] not in ("state", "done"):
        message = kernel.kc.get_iopub_msg(timeout=100)
        if message["msg_type"] == "comm_msg":
            got.append(message["content"]["data"])
    return got


def frame_of(outputs):
    return next(content["data"][FRAME] for _, content in outputs if FRAME in content.get("data", {}))


def test_a_slider_is_drawn_in_a_frame_and_its_value_comes_back(page):
    _, outputs = page.run(SLIDER)
    kinds = [next(iter({FRAME, LIBRARY} & content["data"].keys())) for _, content in outputs]
    assert kinds[0] == LIBRARY
    assert kinds[-1] == FRAME
    widget = next(content["metadata"][FRAME] for _, content in outputs if FRAME in content.get("data", {}))
    model, gate = widget["model_id"], widget["gate"]
    [state] = say(page, type="attach", gate=gate, model=model)
    assert [m["data"]["state"]["value"] for m in state["messages"] if m["comm_id"] == model] == [3]
    update = {"method": "update", "state": {"value": 42}, "buffer_paths": []}
    message = {"msg_type": "comm_msg", "msg_id": "v-1", "comm_id": model, "data": update}
    *echoes, done = say(page, type="comm", gate=gate, epoch=0, msg=message)
    assert echoes[0]["messages"][0]["parent_id"] == "v-1"
    assert done == {"type": "done", "gate": gate, "id": "v-1", "printed": "now 42\n"}
    _, [(_, value)] = page.run("slider.value")
    assert value["data"]["text/plain"] == "42"


def test_an_output_widget_catches_what_is_printed_and_shown_in_it(page):
    page.run("import ipywidgets\nfrom IPython.display import display\nout = ipywidgets.Output()")
    _, outputs = page.run("with out:\n    print('caught')\n    display({'text/plain': 'shown'}, raw=True)")
    assert outputs == []
    assert (
        page.text("print([o.get('text') or o['data']['text/plain'] for o in out.outputs])")
        == "['caught\\n', 'shown']\n"
    )


def test_a_plotly_figure_is_drawn_by_its_own_library_in_a_frame(page):
    need(importlib.util.find_spec("plotly"), "plotly is not installed")
    _, outputs = page.run("import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1, 2]))", timeout=200)
    assert outputs[0][1]["data"].keys() >= {LIBRARY}, outputs
    frame = frame_of(outputs)
    library = next(content["data"][LIBRARY] for _, content in outputs if LIBRARY in content["data"])
    assert library["title"] == "plotly"
    assert frame["libraries"] == [library["sha256"]]
    _, again = page.run("go.Figure(go.Bar(y=[3]))")
    assert [LIBRARY in content["data"] for _, content in again] == [False]


@pytest.mark.slow
def test_a_cell_that_runs_again_shows_its_frame_before_the_library_that_the_page_has(page):
    """The page cleaned two megabytes before it drew."""
    need(importlib.util.find_spec("altair"), "altair is not installed")
    shown = []
    for cell in ("first", "second"):
        content = {"code": "import altair\naltair.Chart({'values': [{'a': 1}]}).mark_bar()", "silent": False}
        message = page.kc.session.msg("execute_request", content, metadata={"cellId": cell, "deletedCells": ["first"]})
        page.kc.shell_channel.send(message)
        outputs = page.outputs(message["header"]["msg_id"], timeout=200)
        shown.append([kind for _, each in outputs for kind in each.get("data", {}) if kind in (FRAME, LIBRARY)])
    assert shown == [[LIBRARY, FRAME], [FRAME, LIBRARY]]


@pytest.mark.parametrize(
    "hostile",
    [
        "send('comm_open', {'comm_id': 'ab', 'target_name': 'evil', 'data': {}})",
        "for n in range(3000): send('comm_msg', {'comm_id': '%x' % n, 'data': {'method': 'update', 'state': {'a': 'evil'}}})",
    ],
)
@pytest.mark.one_case
def test_a_hostile_comm_reaches_no_page(page, hostile):
    page.run(SEND)
    request = page.kc.execute(hostile)
    got = []
    while (
        not got or got[-1]["content"].get("execution_state") != "idle" or got[-1]["parent_header"]["msg_id"] != request
    ):
        got.append(page.kc.get_iopub_msg(timeout=100))
    assert {message["msg_type"] for message in got} <= {"status", "execute_input"}
    assert page.text("print('goes on')") == "goes on\n"
