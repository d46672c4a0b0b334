"""Widgets without a page: what they hold, and that they go when they should."""

import threading

import ipywidgets

from sandbox_kernel.notebook.page.widgets import RunPanel, report_widget

DOCUMENT = {
    "lines": [
        {"area": "files", "name": "read <b>", "enforced": True, "mechanism": "walls", "evidence": "ENOENT",
         "milliseconds": 3.4},
        {"area": "network", "name": "connect", "enforced": False, "mechanism": "none", "evidence": "$\\href{x}{y}$"},
        {"area": "limits", "name": "cpu", "enforced": None, "mechanism": "", "evidence": ""},
    ],
    "languages": {}, "weaknesses": [], "backend": "process", "isolation": "process+sandbox", "host": "here",
}  # fmt: skip


def find(widget, kind):
    found = [widget] if isinstance(widget, kind) else []
    for child in getattr(widget, "children", ()):
        found += find(child, kind)
    return found


def run_again(widget):
    """Press the button and wait until it is done."""
    (button,) = find(widget, ipywidgets.Button)
    button.click()
    for thread in threading.enumerate():
        if thread.name == "sandbox-report":
            thread.join(30)
    return button


def test_the_button_changes_the_table():
    measured = []

    def measure(on_progress):
        measured.append(bar.layout.display)
        on_progress(3, 9)
        measured.append((bar.value, bar.max))
        return {**DOCUMENT, "lines": [], "measured_at": 1e9}

    widget = report_widget(DOCUMENT, measure)
    kinds = (ipywidgets.IntProgress, ipywidgets.Label, ipywidgets.HTML)
    (bar,), (when,), (table,) = (find(widget, kind) for kind in kinds)
    assert "ENOENT" in table.value
    assert "\\href" not in table.value
    button = run_again(widget)
    assert measured == ["", (3, 9)]
    assert "Nothing was measured" in table.value
    assert when.value.startswith("Measured on 2001-09-")
    assert (button.disabled, bar.layout.display) == (False, "none")


def test_a_measurement_that_fails_is_said_on_the_page():
    def measure(on_progress):
        raise OSError("no room")

    widget = report_widget(DOCUMENT, measure)
    assert not run_again(widget).disabled
    assert "no room" in find(widget, ipywidgets.Label)[0].value


def test_a_new_report_closes_the_old_one():
    first = report_widget(DOCUMENT)
    report_widget(DOCUMENT)
    assert first.comm is None


def test_the_panel_draws_time_and_memory_stops_once_and_goes():
    stopped, shown = [], []
    panel = RunPanel(5.0, lambda: stopped.append(1), shown.append)
    panel.update(2.4)
    kinds = (ipywidgets.FloatProgress, ipywidgets.Label, ipywidgets.Button)
    (time, memory), (label, memory_label), (button,) = (find(panel.widget, kind) for kind in kinds)
    assert (time.value, time.max, label.value) == (2.4, 5.0, "2 s of 5 s")
    assert (memory.layout.display, memory_label.value) == ("none", "")
    panel.update(99, (100 << 20, 512 << 20))
    assert time.value == 5.0
    assert (memory.value, memory.layout.display, memory_label.value) == (100 / 512, "", "100 MB of 512 MB")
    assert memory.bar_style == ""
    panel.update(99, (600 << 20, 512 << 20))
    assert (memory.value, memory.bar_style, memory_label.value) == (1.0, "warning", "512 MB of 512 MB")
    button.click()
    assert stopped == [1]
    assert button.disabled
    panel.close()
    assert {widget.comm for widget in (panel.widget, time, memory, label, memory_label, button)} == {None}
    drawn, emptied = shown
    assert (drawn.data["text/plain"], emptied.data) == ("running", {"text/plain": ""})
    assert (emptied.update, emptied.display_id) == (True, drawn.display_id)


def test_in_a_blocking_kernel_a_click_stays_on_the_subshell_it_came_on():
    panel = RunPanel(5.0, lambda: None, print, blocking_kernel=True)
    (button,) = find(panel.widget, ipywidgets.Button)
    assert button.comm._reply_subshell_for({}, "subshell") == "subshell"
    panel.close()
