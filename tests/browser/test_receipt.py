"""The receipt of a run as JupyterLab draws it."""

import time
from dataclasses import replace
from functools import partial

import pytest
from playwright.sync_api import Locator, expect

from sandbox_kernel.model import ExecResult, FsChange, Status, Violation
from tests.browser.lab_page import LabPage, code_cell, notebook_of, receipt_output

pytestmark = pytest.mark.browser

MB = 1 << 20
walled_run = partial(ExecResult, backend="process", isolation="process+sandbox")
GOOD = walled_run(
    exit_code=0, duration=0.1234, cpu_seconds=0.08, peak_memory_bytes=12 * MB, stdout_bytes=14,
    language="python", timeout=5, memory_limit_mb=256,
)  # fmt: skip
CHANGED = replace(GOOD, changes=(FsChange(path="a.txt", kind="created"),))
REFUSED = walled_run(
    exit_code=0, duration=4.0, cpu_seconds=0.1, peak_memory_bytes=250 * MB, stderr_bytes=2 * MB,
    stderr_truncated=True, language="javascript", timeout=5, memory_limit_mb=256,
    violations=(
        Violation(rule="network", subject="example.org:443", reason="no network", remedy="--allow-net example.org"),
        Violation(rule="read", subject="/etc/shadow", reason="outside the work folder"),
    ),
    notes=("The whole standard error is in %sandbox files.",),
)  # fmt: skip
TIMED_OUT = walled_run(
    status=Status.TIMEOUT, limit="timeout", signal=9, duration=2.003, compile_duration=0.8, cpu_seconds=1.98,
    peak_memory_bytes=20 * MB, rolled_back=True, language="rust", timeout=2, memory_limit_mb=2048,
)  # fmt: skip
INTERRUPTED = walled_run(status=Status.INTERRUPTED, duration=0.5, language="command", timeout=30)
#: The light one last: JupyterLab remembers the theme, and the other tests are for the light one.
THEMES = ["JupyterLab Dark", "JupyterLab Dark High Contrast", "JupyterLab Light"]


def open_receipts(lab: LabPage, name: str, *results: ExecResult) -> None:
    cells = [code_cell(f"%%sandbox {run.language}\n…", [receipt_output(run)], i) for i, run in enumerate(results, 1)]
    lab.server.write_notebook(name, notebook_of(*cells))
    lab.open(name)


def test_a_run_with_nothing_notable_takes_no_place_and_shows_time_and_memory_on_hover(lab: LabPage) -> None:
    cells = [code_cell("1", [receipt_output(GOOD)], 1), code_cell("1"), code_cell("1")]
    lab.server.write_notebook("slim.ipynb", notebook_of(*cells))
    lab.open("slim.ipynb")
    expect(lab.receipt(0)).to_have_css("opacity", "0")
    heights = [box["height"] for index in (0, 1) if (box := lab.cell(index).bounding_box())]
    assert heights[0] == pytest.approx(heights[1], abs=2)
    lab.cell(0).hover()
    expect(lab.receipt(0)).to_have_css("opacity", "1")
    summary = lab.receipt(0).locator("summary")
    expect(summary).to_have_text("123 ms12 MB")
    expect(summary).to_have_accessible_name(
        "Sandbox run: ok, python, isolated process, time 123 ms of 5 s, memory 12 MB of 256 MB"
    )
    summary.click()
    expect(lab.receipt(0).locator("dl")).to_contain_text("isolated process")
    lab.screenshot("receipt-open")


def test_details_stay_inside_a_narrow_page(lab: LabPage) -> None:
    usual = lab.page.viewport_size
    assert usual is not None
    open_receipts(lab, "narrow-receipt.ipynb", TIMED_OUT, CHANGED)
    lab.page.set_viewport_size({"width": 480, "height": 800})
    line = lab.receipt(1).locator("summary").bounding_box()
    assert line is not None and line["height"] < 30
    lab.receipt(0).locator("summary").click()
    assert lab.receipt(0).evaluate("(node) => node.scrollWidth <= node.clientWidth")
    for row in lab.receipt(0).locator("dd").all():
        box, outer = row.bounding_box(), lab.receipt(0).bounding_box()
        assert box is not None and outer is not None
        assert box["x"] + box["width"] <= outer["x"] + outer["width"] + 1
    lab.screenshot("receipt-480")
    lab.page.set_viewport_size(usual)


def test_a_receipt_says_how_it_ended_what_it_used_and_what_was_refused(lab: LabPage) -> None:
    open_receipts(lab, "told.ipynb", CHANGED, REFUSED, TIMED_OUT)
    summary = lab.receipt(0).locator("summary")
    expect(summary).to_have_text("✓okpythonisolated process1 file changedtime123 ms of 5 smemory12 MB of 256 MB")
    box = summary.bounding_box()
    assert box is not None and box["height"] < 30
    for meter, (share, level) in {"time": (0.8, "high"), "memory": (250 / 256, "full")}.items():
        drawn = lab.receipt(1).locator(f'[data-meter="{meter}"]')
        expect(drawn).to_have_attribute("data-level", level)
        bar = drawn.locator(".jp-SandboxReceipt-bar").bounding_box()
        fill = drawn.locator(".jp-SandboxReceipt-fill").bounding_box()
        assert bar is not None and fill is not None
        assert fill["width"] / bar["width"] == pytest.approx(share, abs=0.02)
    refused = lab.receipt(1).get_by_role("list", name="refused").get_by_role("listitem")
    expect(refused).to_have_text(
        [
            "refusednetwork example.org:443no network--allow-net example.orgCopy",
            "refusedread /etc/shadowoutside the work folder",
        ]
    )
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    refused.nth(0).get_by_role("button").click()
    expect(refused.nth(0).get_by_role("button")).to_have_text("Copied")
    assert lab.page.evaluate("() => navigator.clipboard.readText()") == "--allow-net example.org"
    # The details open by keyboard, and the cell is not edited.
    summary, details = lab.receipt(2).locator("summary"), lab.receipt(2).locator("dl")
    expect(details).to_be_hidden()
    for key in ("Enter", "Space"):
        summary.focus()
        lab.page.keyboard.press(key)
        expect(details).to_be_visible()
        expect(lab.notebook.locator(".jp-mod-editMode")).to_have_count(0)
        expect(details).to_contain_text("compile time800 ms")
        expect(details).to_contain_text("sessionas it was before this cell")
        lab.page.keyboard.press(key)
        expect(details).to_be_hidden()


def test_receipts_can_be_read_in_every_theme(lab: LabPage) -> None:
    open_receipts(lab, "themes.ipynb", CHANGED, REFUSED, TIMED_OUT, INTERRUPTED)
    lab.receipt(2).locator("summary").click()
    for theme in THEMES:
        lab.set_theme(theme)
        for index in range(4):
            lab.receipt(index).locator("summary").hover()
            for text in ("ending", "mark", "fact", "amount"):
                drawn = lab.receipt(index).locator(f".jp-SandboxReceipt-{text}").first
                assert contrast(drawn) >= 4.5, f"{text} of receipt {index} in {theme}"
        assert contrast(lab.receipt(1).locator("strong").first) >= 4.5
        lab.screenshot(f"receipts-{theme.replace(' ', '-').lower()}")


def contrast(drawn: Locator) -> float:
    """The contrast of an element's text with what is behind it, as the accessibility guidelines measure it."""
    script = """(node) => {
        const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        const behind = [];
        for (let up = node; up; up = up.parentElement) behind.unshift(getComputedStyle(up).backgroundColor);
        const luminance = (layers) => {
            canvas.clearRect(0, 0, 1, 1);
            for (const colour of layers) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => {
                const share = part / 255;
                return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const both = [luminance(behind), luminance([...behind, getComputedStyle(node).color])];
        const [dark, light] = both.sort((a, b) => a - b);
        return (light + 0.05) / (dark + 0.05);
    }"""
    ratio: float = drawn.evaluate(script)
    return ratio


def expect_contrast(drawn: Locator, what: str) -> None:
    """Wait until text can be read: a theme's colours come after the theme."""
    deadline = time.monotonic() + 30
    while (found := contrast(drawn)) < 4.5 and time.monotonic() < deadline:
        drawn.page.wait_for_timeout(100)
    assert found >= 4.5, what
