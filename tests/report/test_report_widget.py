"""Widgets without a page: what they hold, and that they go when they should."""

import threading

import ipywidgets

from sandbox_kernel.report.page import report_widget

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
