"""Which tests ``make test`` runs, decided by measured durations.

``make test-all`` runs everything. ``make test`` (``pytest --quick``) proves every promise once, in its cheapest honest
form: of a test function whose cases together take long, only the cheapest case runs; the functions whose cheapest case
takes longest wait for ``make test-all``, as many as it needs to stay within the budget of time. Browsers belong to ``make test-all``: what starting them takes is measured at
whichever test comes first, so no duration shows it. ``tests/durations.json`` holds what was measured and is written by
``python -m tests.tiers JUNIT.xml…`` from the records of a whole run. A test that is not in it has not been measured, or
is quick, and always runs.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

#: Test functions whose cases together take less than this run in full.
QUICK_FUNCTION_S = 0.5
#: What the tests of ``make test`` may take together, measured as CI runs them (more at once than there are cores).
#: Two workers, and what collecting and starting take, make less than five minutes of it.
BUDGET_S = 400

#: Folders of ``make test-all``, whatever their tests take.
NEVER_QUICK = ("tests/browser/",)

RECORD = Path(__file__).with_name("durations.json")


@dataclass(frozen=True)
class Measured:
    """The cheapest case of a test function, by its parameters, and the seconds that it takes."""

    cheapest: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a whole run measured.

    Attributes:
        files: seconds by file.
        functions: the test functions that are not quick.
        longest_s: the most that the cheapest case of a function may take for ``make test``.
        quick_files: seconds by file of what ``make test`` runs.

    """

    files: Mapping[str, float]
    functions: Mapping[str, Measured]
    longest_s: float
    quick_files: Mapping[str, float] = field(default_factory=dict)


def file_of(node_id: str) -> str:
    """The file of a test."""
    return node_id.split("::", 1)[0]


def function_of(node_id: str) -> str:
    """The test function of a test: its identifier without the parameters."""
    return node_id.split("[", 1)[0]


def summarise(durations: Mapping[str, float]) -> Record:
    """What is worth keeping of a whole run."""
    files: dict[str, float] = defaultdict(float)
    functions: dict[str, dict[str, float]] = defaultdict(dict)
    for node_id, seconds in durations.items():
        files[file_of(node_id)] += seconds
        functions[function_of(node_id)][node_id] = seconds
    slow: dict[str, Measured] = {}
    for name, cases in sorted(functions.items()):
        if sum(cases.values()) >= QUICK_FUNCTION_S:
            cheapest = min(cases, key=lambda case: (cases[case], case))
            slow[name] = Measured(cheapest[len(name) :], round(cases[cheapest], 2))
    always = sum(
        seconds
        for node_id, seconds in durations.items()
        if function_of(node_id) not in slow and not node_id.startswith(NEVER_QUICK)
    )
    record = Record(
        files={name: round(total, 1) for name, total in sorted(files.items()) if total >= 1},
        functions=slow,
        longest_s=_longest(slow, BUDGET_S - always),
    )
    quick: dict[str, float] = defaultdict(float)
    for node_id, seconds in durations.items():
        if is_quick(node_id, record):
            quick[file_of(node_id)] += seconds
    return replace(record, quick_files={name: round(total, 1) for name, total in sorted(quick.items()) if total >= 1})


def _longest(slow: Mapping[str, Measured], budget_s: float) -> float:
    """The most that a single case may take, so that all of them together stay within the budget."""
    left, longest = budget_s, 0.0
    for seconds in sorted(found.seconds for name, found in slow.items() if not name.startswith(NEVER_QUICK)):
        left -= seconds
        if left < 0:
            break
        longest = seconds
    return longest


def is_quick(node_id: str, record: Record) -> bool:
    """Whether ``make test`` runs this test."""
    if node_id.startswith(NEVER_QUICK):
        return False
    name = function_of(node_id)
    measured = record.functions.get(name)
    if measured is None:
        return True
    return node_id[len(name) :] == measured.cheapest and measured.seconds <= record.longest_s


def load() -> Record:
    """What was measured; empty before anything was."""
    if not RECORD.exists():
        return Record(files={}, functions={}, longest_s=0)
    found = json.loads(RECORD.read_text())
    functions = {name: Measured(**measured) for name, measured in found.pop("functions").items()}
    return Record(functions=functions, **found)


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
    RECORD.write_text(json.dumps(asdict(summarise(read_junit(sys.argv[1:]))), indent=1, sort_keys=True) + "\n")
