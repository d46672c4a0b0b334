"""Widgets without a page: what they hold, and that they go when they should."""

import threading

import ipywidgets
import pytest

from sandbox_kernel.notebook.widgets import RunPanel, report_rows, report_widget, view

DOCUMENT = {
    "lines": [
        {"area": "files", "name": "read <b>", "enforced": True, "mechanism": "walls", "evidence": "ENOENT",
         "milliseconds": 3.4},
        {"area": "network", "name": "connect", "enforced": False, "mechanism": "none", "evidence": "$\\href{x}{y}$"},
        {"area": "limits", "name": "cpu", "enforced": None, "mechanism": "", "evidence": ""},
    ]
}  # fmt: skip


def find(widget, kind):
    found = [widget] if isinstance(widget, kind) else []
    for child in getattr(widget, "children", ()):
        found += find(child, kind)
    return found


def test_the_rows_are_escaped_and_marked():
    html = report_rows(DOCUMENT, open_only=False)
    assert "read &lt;b&gt;" in html
    assert html.count("✓") == 1
    assert html.count("✗") == 1
    assert "\\href" not in html
    assert "3 ms" in html


def test_only_what_is_not_enforced_can_be_shown():
    assert "ENOENT" not in report_rows(DOCUMENT, open_only=True)
    assert "Everything that was tried was stopped" in report_rows({"lines": DOCUMENT["lines"][:1]}, open_only=True)


@pytest.mark.parametrize("document", [{}, {"lines": None}, {"lines": "x"}, {"lines": [3, {}]}])
def test_a_strange_document_is_drawn_or_said_to_be_empty(document):
    assert report_rows(document, open_only=False)


def test_the_filter_and_the_button_change_the_table():
    measured = []

    def measure():
        measured.append(1)
        return {"lines": []}

    widget = report_widget(DOCUMENT, measure)
    (choice,), (table,), (button,) = (
        find(widget, kind) for kind in (ipywidgets.ToggleButtons, ipywidgets.HTML, ipywidgets.Button)
    )
    choice.value = choice.options[1]
    assert "ENOENT" not in table.value
    button.click()
    for thread in threading.enumerate():
        if thread.name == "sandbox-report":
            thread.join(30)
    assert measured == [1]
    assert "Nothing was measured" in table.value
    assert not button.disabled


def test_a_new_report_closes_the_old_one():
    first = report_widget(DOCUMENT)
    report_widget(DOCUMENT)
    assert first.comm is None


def test_the_panel_draws_time_stops_once_and_goes():
    stopped = []
    panel = RunPanel(5.0, lambda: stopped.append(1))
    panel.update(2.4)
    (bar,), (label,), (button,) = (
        find(panel.widget, kind) for kind in (ipywidgets.FloatProgress, ipywidgets.Label, ipywidgets.Button)
    )
    assert (bar.value, bar.max, label.value) == (2.4, 5.0, "2 s of 5 s")
    panel.update(99)
    assert bar.value == 5.0
    button.click()
    assert stopped == [1]
    assert button.disabled
    panel.close()
    assert panel.widget.comm is None


def test_in_a_blocking_kernel_a_click_stays_on_the_subshell_it_came_on():
    panel = RunPanel(5.0, lambda: None, blocking_kernel=True)
    (button,) = find(panel.widget, ipywidgets.Button)
    assert button.comm._reply_subshell_for({}, "subshell") == "subshell"
    panel.close()


def test_a_view_has_a_text_that_never_changes():
    panel = RunPanel(5.0, lambda: None)
    bundle = view(panel.widget, "running")
    assert bundle["text/plain"] == "running"
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.widget.model_id
    panel.close()
