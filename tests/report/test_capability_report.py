"""The report shows each line by its mark, fails closed, and is the same in every form."""

import json
import pickle
import re
from dataclasses import replace
from html import unescape

import pytest

from sandbox_kernel import CapabilityReport, InvalidRequest, PolicyViolation, ProcessBackend, ProcessConfig, Sandbox
from sandbox_kernel.backends.probes import capabilities
from sandbox_kernel.backends.probes.canaries import Measurement, OnProgress
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.report.capability_report import make_report

HOSTILE = "<script>alert(1)</script>\"'&<b>"


def line(name: str, enforced: bool | None, area: str = "files") -> Measurement:
    return Measurement(area=area, name=name, enforced=enforced, mechanism="the wall", evidence="what came back")


REPORT = CapabilityReport(
    backend="process",
    isolation="process+sandbox",
    host="Linux 6.1 x86_64",
    lines=(line("read", True), line("write", True), line("connect", False, "network"), line("spend", None, "limits")),
    languages={
        "python": Availability(available=True, version="3.11", origin="/usr/bin/python3"),
        "rust": Availability(available=False, reason="no rustc", remedy="install rustc"),
    },
    weaknesses=("names of processes can be seen",),
)
KNOWN = "connect, files, limits, network, read, spend, write"


def test_the_terminal_form_marks_each_line_under_its_area() -> None:
    text = str(REPORT)
    assert re.findall(r"^  ([✓✗?]) (\w+)", text, re.MULTILINE) == [
        ("✓", "read"), ("✓", "write"), ("✗", "connect"), ("?", "spend"), ("✓", "python"), ("✗", "rust"),
    ]  # fmt: skip
    assert re.findall(r"^(\w+)$", text, re.MULTILINE) == ["files", "network", "limits", "languages"]
    assert "no rustc; install rustc" in text and "names of processes can be seen" in text
    assert text.startswith("process · isolated process · Linux 6.1 x86_64\n")


def test_the_plain_form_is_json_and_has_every_line_in_order() -> None:
    plain = REPORT.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert [row["name"] for row in plain["lines"]] == ["read", "write", "connect", "spend"]  # type: ignore[index,attr-defined]
    assert [row["enforced"] for row in plain["lines"]] == [True, True, False, None]  # type: ignore[index,attr-defined]


def test_what_is_required_and_enforced_returns_the_report() -> None:
    assert REPORT.require("read", "write") is REPORT
    assert REPORT.require("files") is REPORT
    assert REPORT.require() is REPORT


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["files", "network"], r"network is required and 'connect' is not enforced \(the wall: what"),
        (["spend"], "not testable here"),
        *(([name], KNOWN) for name in ("", "netwrok", "READ", "python")),
    ],
)
def test_what_is_required_and_not_known_to_be_enforced_is_refused_with_the_reason(names: list[str], said: str) -> None:
    with pytest.raises(PolicyViolation, match=said):
        REPORT.require(*names)


def test_one_bad_line_of_an_area_fails_the_whole_area() -> None:
    mixed = replace(REPORT, lines=(line("read", True), line("write", False)))
    with pytest.raises(PolicyViolation, match="'write' is not enforced"):
        mixed.require("files")


def test_the_page_sums_up_and_a_row_opens_to_its_evidence() -> None:
    page = REPORT._repr_html_()
    assert "process · isolated process · Linux 6.1 x86_64" in page and page.count(">files<") == 1
    assert "2 enforced, 1 not enforced, 1 not testable here" in page
    evidence = "<div [^>]*>what came back</div></details>"
    assert re.search(rf"<details><summary>write</summary>{evidence}", page)
    assert re.search(rf"<details open><summary>connect</summary>{evidence}", page)
    assert re.findall(r">([✓✗?])<", page) == ["✓", "✓", "✗", "?", "✓", "✗"]
    for text in ("3.11", "/usr/bin/python3", "no rustc; install rustc", "names of processes can be seen"):
        assert text in page
    assert replace(REPORT, measured_at=999.0)._repr_html_() == page  # nothing in it depends on the time


def test_nothing_in_the_page_can_become_markup() -> None:
    hostile = replace(
        REPORT,
        host=HOSTILE,
        lines=(Measurement(area=HOSTILE, name=HOSTILE, enforced=True, mechanism=HOSTILE, evidence=HOSTILE),),
        languages={
            HOSTILE: Availability(available=True, version=HOSTILE, origin=HOSTILE),
            "x": Availability(available=False, reason=HOSTILE, remedy=HOSTILE),
        },
    )
    page = hostile._repr_html_()
    assert set(re.findall(r"<(\w+)", page)) <= {
        "div",
        "b",
        "table",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "p",
        "ul",
        "li",
    }
    assert unescape(page).count(HOSTILE) == 10


def _inside(widget: object, name: str) -> list[object]:
    found = [widget] if type(widget).__name__ == name else []
    for child in getattr(widget, "children", ()):
        found += _inside(child, name)
    return found


def test_the_widget_shows_the_same_page_and_cannot_measure_what_nobody_can() -> None:
    widget = REPORT.as_widget()
    (page,), (button,) = _inside(widget, "HTML"), _inside(widget, "Button")
    assert page.value == REPORT._repr_html_()  # type: ignore[attr-defined]
    assert button.disabled  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_report_that_was_measured_can_be_measured_again() -> None:
    report = Sandbox().report()
    assert report.again is not None
    seen: list[tuple[int, int]] = []
    newer = report.again(lambda done, total: seen.append((done, total)))
    assert newer.measured_at > report.measured_at
    assert seen
    assert replace(report, again=None) == report


def test_a_report_that_can_be_measured_again_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(replace(REPORT, again=lambda told: REPORT)))
    assert (sent, sent.again) == (REPORT, None)


def test_a_report_is_measured_once_a_boot_and_again_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def measure(run: object, words: object, *, walls: bool, on_progress: OnProgress | None) -> tuple[Measurement, ...]:
        nonlocal calls
        calls += 1
        if on_progress is not None:
            on_progress(1, 1)
        return (line("spend", True, "limits"), line("read", True))

    monkeypatch.setattr(capabilities, "measure", measure)
    monkeypatch.setattr(capabilities, "_measured", {})
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    first = make_report(backend)
    assert [row.area for row in first.lines if row.area != "gpu"] == ["files", "limits"]  # gpu: of a host with a card
    assert first.measured_at > 0
    make_report(backend)
    monkeypatch.setattr(capabilities, "_measured", {})  # as in another process of the same boot
    assert make_report(backend) == first
    assert calls == 1
    heard: list[tuple[int, int]] = []
    make_report(backend, again=True, on_progress=lambda done, total: heard.append((done, total)))
    assert (calls, heard) == (2, [(1, 1)])


def test_a_sandbox_that_must_hold_what_it_does_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        capabilities, "measure", lambda *_, **__: (line("read", True), line("connect", False, "network"))
    )
    monkeypatch.setattr(capabilities, "_measured", {})
    with Sandbox(require=["files"]) as box:
        assert box.report(require=["read"]).lines
        with pytest.raises(InvalidRequest, match="takes a list"):
            box.report(require="files")
    with pytest.raises(PolicyViolation, match=r"'connect' is not enforced \(the wall: what came back\)"):
        Sandbox(require=["files", "network"])


def test_what_the_host_does_not_have_need_not_be_stopped() -> None:
    absent = replace(line("open a vsock", None, "network"), absent=True)
    assert replace(REPORT, lines=(line("connect", True, "network"), absent)).require("network")


def test_the_report_of_a_folder_says_what_is_hidden_in_it() -> None:
    shown = replace(REPORT, hidden=(".env", "<b>.pem"))
    assert ".env, <b>.pem" in str(shown) and shown.to_dict()["hidden"] == [".env", "<b>.pem"]
    assert ".env, &lt;b&gt;.pem" in shown._repr_html_()
    assert "Hidden" not in REPORT._repr_html_() and "hidden" not in REPORT.to_dict()
