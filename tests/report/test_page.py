"""The report's page: grouped by area, one row opens to its evidence, and nothing in it differs from run to run."""

from __future__ import annotations

import re

from sandbox_kernel.report.page import report_page

DOCUMENT: dict[str, object] = {
    "backend": "process",
    "isolation": "process+sandbox",
    "host": "Linux 6.1",
    "lines": [
        {"area": "files", "name": "read <b>", "enforced": True, "mechanism": "walls", "evidence": "ENOENT"},
        {"area": "files", "name": "write", "enforced": True, "mechanism": "walls", "evidence": "EROFS"},
        {"area": "network", "name": "connect", "enforced": False, "mechanism": "none", "evidence": "connected"},
        {"area": "limits", "name": "cpu", "enforced": None, "mechanism": "", "evidence": "could not be tried"},
    ],
    "languages": {
        "python": {"available": True, "version": "3.11", "origin": "/usr/bin/python3", "reason": "", "remedy": ""},
        "go": {"available": False, "version": "", "origin": "", "reason": "no go", "remedy": "apt install golang"},
    },
    "weaknesses": ["names of processes can be seen"],
    "measured_at": 123456.0,
}


def test_it_sums_up_and_names_each_area_once() -> None:
    page = report_page(DOCUMENT)
    assert "process · isolated process · Linux 6.1" in page
    assert "2 enforced, 1 not enforced, 1 not testable here" in page
    assert page.count(">files<") == 1
    assert "read &lt;b&gt;" in page


def test_a_row_opens_to_its_evidence_and_what_is_not_enforced_is_open() -> None:
    page = report_page(DOCUMENT)
    assert re.search(r"<details><summary>write</summary><div [^>]*>EROFS</div></details>", page)
    assert re.search(r"<details open><summary>connect</summary><div [^>]*>connected</div></details>", page)
    assert re.findall(r">([✓✗?])<", page) == ["✓", "✓", "✗", "?", "✓", "✗"]


def test_languages_have_version_origin_and_remedy() -> None:
    page = report_page(DOCUMENT)
    assert "3.11" in page
    assert "/usr/bin/python3" in page
    assert "no go; apt install golang" in page
    assert "names of processes can be seen" in page


def test_nothing_in_it_depends_on_the_time() -> None:
    later = {**DOCUMENT, "measured_at": 999.0, "lines": [{**row, "milliseconds": 7.7} for row in DOCUMENT["lines"]]}  # type: ignore[attr-defined]
    assert report_page(later) == report_page(DOCUMENT)
