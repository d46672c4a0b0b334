"""Which tests ``make test`` runs, decided by measured durations.

``make test-all`` runs everything. ``make test`` (``pytest --quick``) proves every promise once, in its cheapest honest
form: of a test function whose cases together take long, only the cheapest case runs; a function whose cheapest case is
long itself waits for ``make test-all``. Browsers belong to ``make test-all``: what starting them takes is measured at
whichever test comes first, so no duration shows it. So do the agent frameworks, which ``make test`` does not install.
``tests/durations.json`` holds what was measured and is written by ``python -m tests.tiers JUNIT.xml…`` from the records
of a whole run. A test that is not in it has not been measured, or is quick, and always runs.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Test functions whose cases together take less than this run in full.
QUICK_FUNCTION_S = 0.5
#: A function whose cheapest case takes longer than this runs in ``make test-all`` alone.
LONG_CASE_S = 1.2

#: Folders of ``make test-all``, whatever their tests take.
NEVER_QUICK = ("tests/browser/", "tests/test_frameworks.py")

RECORD = Path(__file__).with_name("durations.json")


def function_of(node_id: str) -> str:
    """The test function of a test: its identifier without the parameters."""
    return node_id.split("[", 1)[0]


def summarise(durations: Mapping[str, float]) -> dict[str, dict[str, object]]:
    """What is worth keeping of a whole run: the files by their total, and the functions that are not quick."""
    files: dict[str, float] = defaultdict(float)
    functions: dict[str, dict[str, float]] = defaultdict(dict)
    for node_id, seconds in durations.items():
        files[node_id.split("::", 1)[0]] += seconds
        functions[function_of(node_id)][node_id] = seconds
    slow = {}
    for name, cases in sorted(functions.items()):
        if sum(cases.values()) >= QUICK_FUNCTION_S:
            cheapest = min(cases, key=lambda case: (cases[case], case))
            slow[name] = {"cheapest": cheapest[len(name) :], "seconds": round(cases[cheapest], 2)}
    return {"files": {name: round(total, 1) for name, total in sorted(files.items()) if total >= 1}, "functions": slow}


def is_quick(node_id: str, functions: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether ``make test`` runs this test."""
    if node_id.startswith(NEVER_QUICK):
        return False
    name = function_of(node_id)
    measured = functions.get(name)
    if measured is None:
        return True
    return node_id[len(name) :] == measured["cheapest"] and float(str(measured["seconds"])) <= LONG_CASE_S


def load() -> tuple[dict[str, float], dict[str, dict[str, object]]]:
    """The measured files and functions; empty before anything was measured."""
    if not RECORD.exists():
        return {}, {}
    record = json.loads(RECORD.read_text())
    return record["files"], record["functions"]


def read_junit(paths: Iterable[str]) -> dict[str, float]:
    """Durations by test, from records that pytest wrote with ``--junitxml``."""
    durations: dict[str, float] = {}
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            if case.find("skipped") is None:
                durations[_node_id(case.get("classname", ""), case.get("name", ""))] = float(case.get("time", 0))
    return durations


def _node_id(classname: str, name: str) -> str:
    """The identifier of a test; a record joins the names of its file and of its class, if it has one, by dots."""
    *folders, last = classname.split(".")
    if last.startswith("test_"):
        return f"{'/'.join([*folders, last])}.py::{name}"
    return f"{'/'.join(folders)}.py::{last}::{name}"


if __name__ == "__main__":
    RECORD.write_text(json.dumps(summarise(read_junit(sys.argv[1:])), indent=1, sort_keys=True) + "\n")
