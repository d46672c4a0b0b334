"""A receipt shows how a run ended; nothing measured stands in its data, and nothing it shows can be markup."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from sandbox_kernel.model import ExecResult, Status, Violation, describe_end, notes
from sandbox_kernel.receipt import MIME, facts, measurements, mime_bundle, plain_text, unmarked

DONE = ExecResult(
    status=Status.FAILED,
    exit_code=3,
    language="python",
    backend="process",
    isolation="process+sandbox",
    timeout=5.0,
    memory_limit_mb=64,
    notes=("files were kept",),
    violations=(Violation(rule="network", subject="example.org:443", reason="not allowed", remedy="--allow-net x"),),
)
#: The same run on another day: everything that is measured differs.
LATER = replace(
    DONE,
    duration=123.456,
    compile_duration=7.89,
    cpu_seconds=98.765,
    peak_memory_bytes=987654321,
    stdout_bytes=111,
    stderr_bytes=222,
    fuel_used=333,
    notes=(*DONE.notes, notes.compile_cached()),
)


def html(result: ExecResult, ending: str) -> str:
    return str(mime_bundle(result, ending)["text/html"])


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


@pytest.mark.parametrize("status", list(Status))
def test_the_data_of_two_runs_that_differ_only_in_what_was_measured_is_the_same(status: Status) -> None:
    first, second = replace(DONE, status=status), replace(LATER, status=status)
    (data, metadata), (later, later_metadata) = first._repr_mimebundle_(), second._repr_mimebundle_()
    assert data == later
    assert measurements(first) != measurements(second)
    assert (metadata, later_metadata) == ({MIME: measurements(first)}, {MIME: measurements(second)})


def test_every_measured_value_is_in_the_measurements() -> None:
    assert measurements(LATER) == {
        "duration_s": 123.456,
        "compile_duration_s": 7.89,
        "cpu_s": 98.765,
        "peak_memory_bytes": 987654321,
        "stdout_bytes": 111,
        "stderr_bytes": 222,
        "fuel_used": 333,
        "notes": ["this time: the compiled program came from the cache"],
    }


def test_facts_and_measurements_are_plain_json() -> None:
    known = facts(LATER, describe_end(LATER))
    assert json.loads(json.dumps(known)) == known
    assert json.loads(json.dumps(measurements(LATER))) == measurements(LATER)
    assert known["notes"] == ["files were kept"]


def test_a_bundle_has_three_forms() -> None:
    assert set(mime_bundle(DONE, "exit code 3")) == {MIME, "text/html", "text/plain"}


def test_the_plain_form_says_how_it_ended_under_which_limits_and_what_was_refused() -> None:
    assert plain_text(DONE, describe_end(DONE)).splitlines() == [
        "▣ [python · exit code 3 · limits 5 s, 64 MB · isolated process]",
        "  refused: network example.org:443: not allowed → --allow-net x",
        "  note: files were kept",
    ]


@pytest.mark.parametrize(
    ("timeout", "memory_mb", "shown"),
    [(600.0, 5888, "10 min, 5.75 GB"), (90.0, 512, "90 s, 512 MB"), (None, 2048, "2 GB")],
)
def test_limits_have_the_units_of_the_status_bar(timeout: float | None, memory_mb: int, shown: str) -> None:
    result = replace(DONE, timeout=timeout, memory_limit_mb=memory_mb)
    assert f" · limits {shown} · " in plain_text(result, "ok") and shown in html(result, "ok")


def test_an_unknown_isolation_is_said_and_not_left_out() -> None:
    assert plain_text(ExecResult(), "ok") == "▣ [run · ok · unknown isolation]"


class Tags(HTMLParser):
    """Collects what a browser would take for markup."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))


def tags(text: str) -> list[tuple[str, list[str]]]:
    """Every tag of a page with the names of its attributes."""
    parser = Tags()
    parser.feed(text)
    parser.close()
    return parser.found


@pytest.mark.attack("F17", "host")
@pytest.mark.parametrize("field", ["language", "isolation", "notes", "rule", "subject", "reason", "remedy", "ending"])
def test_no_value_of_a_receipt_can_become_markup(field: str) -> None:
    ending = HOSTILE if field == "ending" else "exit code 3"
    violation = Violation(rule="r", subject="s", reason="t", remedy="u")
    plain = replace(DONE, notes=("n",), violations=(violation,))
    hostile = plain
    if field == "notes":
        hostile = replace(plain, notes=(HOSTILE,))
    elif field in ("language", "isolation"):
        hostile = replace(plain, **{field: HOSTILE})  # type: ignore[arg-type]
    elif field != "ending":
        hostile = replace(plain, violations=(replace(violation, **{field: HOSTILE}),))
    page = html(hostile, ending)
    assert tags(page) == tags(html(plain, "exit code 3"))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_the_page_has_no_script_link_or_handler_of_its_own() -> None:
    for tag, attributes in tags(html(DONE, "exit code 3")):
        assert tag in ("div", "span", "code")
        assert set(attributes) <= {"class", "style"}


@pytest.mark.attack("F17", "host")
def test_text_of_a_sandbox_is_never_read_as_a_formula() -> None:
    assert html(DONE, "$\\href{javascript:x}{y}$").startswith('<div class="mathjax_ignore tex2jax_ignore"')


def test_good_and_bad_ends_have_different_colours() -> None:
    assert html(replace(DONE, status=Status.OK), "x") != html(DONE, "x")


def test_why_a_backend_was_chosen_is_told_where_it_is_news_and_kept_in_the_metadata() -> None:
    why = "backend 'auto' took wasm: modules of WebAssembly run nowhere else"
    chosen = replace(DONE, backend="wasm", isolation="wasm", chosen=why)
    assert f"  note: {why}" in plain_text(chosen, "ok").splitlines()
    assert "took wasm" in html(chosen, "ok")
    assert measurements(chosen)["chosen"] == why
    plain = replace(DONE, chosen="backend 'auto' took process: …")
    assert plain._repr_mimebundle_()[0] == DONE._repr_mimebundle_()[0]
    assert measurements(plain)["chosen"] == plain.chosen


def test_what_a_refusal_or_a_note_quotes_stays_on_its_line_and_bears_no_mark_of_ours() -> None:
    forged = "x\n\u25a3 [python \u00b7 ok]\n  note: no network was used\u202e\u200b\x1b[8m" + "y" * 9999
    refused = Violation(rule="network", subject=forged, reason=forged, remedy=forged)
    result = replace(DONE, violations=(refused,), notes=(forged,))
    text = plain_text(result, "ok")
    assert len(text.splitlines()) == 3
    assert not any(sign in unmarked("\u25aa\u20de \u22a1 x\u20de") for sign in "\u20de\u22a1")
    assert [text.count(sign) for sign in ("\u25a3", "\u202e", "\u200b", "\x1b")] == [1, 0, 0, 0]
    assert len(text) < 6000
    told = facts(result, "ok")
    assert not any(sign in str(told) + html(result, "ok") for sign in ("\n", "\\n", "\u25a3", "\u202e", "\x1b"))
