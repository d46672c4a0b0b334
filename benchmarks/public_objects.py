"""Sends the objects of Kishu's public list through undo, redo, checkout, save, load and fork, and prints a table.

    python -m benchmarks.public_objects CASES [--packages NAME …] [--seaborn-data FOLDER] [--found FILE] [--write FILE]

CASES is ``kishu/coverage/coverage_test_cases.py`` of illinoisdata/kishu: each case declares a variable of a library's
class and changes it. It is read, not run: the statements run inside a sandbox only. A case whose package is
not installed here, or whose statements fail with the installed version, is counted as not run, with the reason. FOLDER
is a copy of the repository mwaskom/seaborn-data, which some cases would fetch: the sandbox has no network. FILE keeps
what was found, so that a run that was stopped goes on with the cases that are left.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.markdown_section import table
from sandbox_kernel import Limits, Sandbox, SandboxPolicy
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.session.session import Session

#: Seconds that one cell of a case may take, and what Spark takes more of than others.
CELL_S, LIMITS = 240, Limits(processes=500, open_files=4096)
#: Prints a text that is the same for equal values and different for others: what a pickle would hold, without its
#: sharing of equal strings, which another process does differently. What cannot be pickled is described by its parts,
#: and a drawing by its pixels.
_LOOK = r"""
def _mark():
    import hashlib, importlib, pickle, re, sys, types
    parts, seen, kept = [], {}, []
    def visit(value, depth=0):
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes, type(...)):
            parts.append(f"{kind.__name__} {value!r}")
            return
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            parts.append(f"name {getattr(value, '__qualname__', value.__name__)}")
            return
        if id(value) in seen:
            parts.append(f"again {seen[id(value)]}")
            return
        seen[id(value)] = len(seen)
        kept.append(value)
        parts.append(f"{kind.__module__}.{kind.__qualname__}")
        if depth > 200 or kind.__name__ == "CallbackRegistry":  # matplotlib numbers its callbacks anew
            return
        if kind.__name__ == "ndarray" and value.dtype.kind not in "OV":
            parts.append(f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
        elif kind in (list, tuple):
            for item in value:
                visit(item, depth + 1)
        elif "matplotlib.artist" in sys.modules and isinstance(value, sys.modules["matplotlib.artist"].Artist):
            drawing(value)
        elif "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
            # A pickle of its memory is an archive with a number of its own.
            visit([value.detach().cpu().numpy(), value.requires_grad, str(value.device)], depth + 1)
        elif kind.__module__.startswith("keras.") and hasattr(value, "get_config"):
            # Its pickle has the time of day in it.
            compiled = getattr(value, "get_compile_config", dict)()
            visit([value.get_config(), compiled, [kept.numpy() for kept in getattr(value, "variables", ())]], depth + 1)
        elif kind in (set, frozenset):
            parts.append(" ".join(sorted(map(repr, value))))
        elif kind is dict:
            for key in value:
                visit(key, depth + 1)
                visit(value[key], depth + 1)
        else:
            try:
                made = value.__reduce_ex__(4)
                if isinstance(made, str):
                    parts.append(made)
                    return
                pieces = [list(piece) if hasattr(piece, "__next__") else piece for piece in made]
            except Exception:
                # Native code: what it says of itself.
                state = dict(getattr(value, "__dict__", {}))
                for name in dir(kind):
                    if isinstance(getattr(kind, name, None), (types.GetSetDescriptorType, types.MemberDescriptorType)):
                        try:
                            state[name] = re.sub(" at 0x[0-9a-f]+", "", repr(getattr(value, name)))
                        except Exception:
                            state[name] = None
                pieces = [re.sub(" at 0x[0-9a-f]+", "", repr(value)), (), state]
            for number, piece in enumerate(pieces):
                if number == 2 and type(piece) is dict and all(type(name) is str for name in piece):
                    piece = {name: piece[name] for name in sorted(piece)}  # attributes have no order
                visit(piece, depth + 1)
    def drawing(artist):
        # What is drawn, and what the artist says of itself: matplotlib sets up the rest anew after each pickle.
        figure = artist.get_figure()
        if figure is not None:
            canvas = importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
            canvas.draw()
            parts.append(hashlib.sha256(bytes(canvas.buffer_rgba())).hexdigest())
        for name, said in sorted(artist.properties().items()):
            if isinstance(said, (bool, int, float, str, tuple)):
                parts.append(re.sub(" at 0x[0-9a-f]+", "", f"{name} {said!r}"))
        if figure is None:
            for inner in vars(artist).values():
                if isinstance(inner, sys.modules["matplotlib.artist"].Artist):
                    visit(inner)
    visit(VARIABLE)
    print(hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest())
_mark(); del _mark
"""


@dataclass(frozen=True)
class Case:
    """One object of the list."""

    package: str
    kind: str
    variable: str
    declare: str
    change: str


@dataclass(frozen=True)
class Verdict:
    """How a case went. ``not_run`` says why it was not run; the others are empty when all was right.

    Attributes:
        not_run: why the statements could not be run here.
        moved: what was wrong after undo, redo or checkout.
        stored: what was wrong after save, load or fork and was not said.
        by_its_own: the value is the one that the library's own pickle makes, which is not quite the same.
        lost: why the variable could not be stored, as the session said.

    """

    not_run: str = ""
    moved: str = ""
    stored: str = ""
    by_its_own: str = ""
    lost: str = ""


def cases_of(text: str) -> list[Case]:
    """Return the cases of Kishu's file, which is a list of calls with literal arguments; each once."""
    found: dict[Case, None] = {}
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "LibCoverageTestCase":
            said = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
            declare = "\n".join([*said["import_statements"], *said["var_declare_statements"]])
            change = "\n".join(said["var_modify_statements"])
            found[Case(said["module_name"], said["class_name"], said["var_name"], declare, change)] = None
    return list(found)


class _NotRun(Exception):
    """Raised when a statement of a case fails; the message says how."""


def _run(session: Session, code: str) -> str:
    result = session.run(code, timeout=CELL_S)
    if not result.ok:
        lines = result.stderr.strip().splitlines() or [str(result.error or result.status)]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Timeout)\b", line)]
        raise _NotRun(errors[-1][:160] if errors else f"{result.status}: {lines[-1]}"[:160])
    return result.stdout


def mark(session: Session, case: Case, value: str = "") -> str:
    """Return a text that tells the states of the case's variable apart, or of an expression; adds a cell."""
    return _run(session, _LOOK.replace("VARIABLE", value or case.variable)).splitlines()[-1]


def mark_of_copy(session: Session, case: Case) -> str:
    """Return the mark of what ``pickle`` makes of the variable in the very same session; empty when it cannot."""
    try:
        return mark(session, case, f"pickle.loads(pickle.dumps({case.variable}, 5))")
    except _NotRun:
        return ""


def policy_with(seaborn_data: Path | None) -> SandboxPolicy:
    """Return the standard policy, with the settings of Java, for Spark, and seaborn's files where they are given."""
    policy = SandboxPolicy.preset("standard")
    for settings in Path("/etc").glob("java-*-openjdk"):
        policy = policy.allow_read(str(settings))
    if seaborn_data is None:
        return policy
    return policy.mount(str(seaborn_data), "/seaborn-data").with_env("SEABORN_DATA", "/seaborn-data")


def tried(case: Case, policy: SandboxPolicy) -> Verdict:
    """Send one case through every move."""
    with Sandbox(policy=policy) as box, box.session(checkpoints=10, memory_mb=4096, limits=LIMITS) as session:
        try:
            _run(session, f"import warnings; warnings.simplefilter('ignore')\n{case.declare}")
            session.checkpoint("declared")
            _run(session, case.change)
            session.checkpoint("changed")
            changed = mark(session, case)
            session.undo(2)
            declared = mark(session, case)
        except _NotRun as error:
            return Verdict(not_run=str(error))
        if declared == changed:
            return Verdict(not_run="the change does not show in what a pickle would hold")
        wrong: list[str] = []
        session.checkout("declared")
        session.redo()
        session.checkout("changed")
        if mark(session, case) != changed:
            wrong.append("redo")
        session.checkout("declared")
        if mark(session, case) != declared:
            wrong.append("checkout")
        session.checkout("changed")
        return _stored(session, case, changed, ", ".join(wrong), policy)


def _stored(session: Session, case: Case, changed: str, moved: str, policy: SandboxPolicy) -> Verdict:
    marks: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "state"
        try:
            report = session.save(place)  # type: ignore[attr-defined]
            if case.variable in report.lost:
                return Verdict(moved=moved, lost=report.lost[case.variable])
            with session.fork() as fork:  # type: ignore[attr-defined]
                if case.variable in fork.restored.lost:
                    return Verdict(moved=moved, lost=fork.restored.lost[case.variable])
                marks["fork"] = mark(fork, case)
            with Sandbox(policy=policy) as other, other.load_session(place) as again:
                marks["load"] = mark(again, case)
        except (_NotRun, SandboxError) as error:
            return Verdict(moved=moved, stored=f"{type(error).__name__}: {error}"[:160])
    wrong = [move for move, found in marks.items() if found != changed]
    if wrong and set(marks.values()) == {mark_of_copy(session, case)}:
        return Verdict(moved=moved, by_its_own="pickle in one process makes the same")
    return Verdict(moved=moved, stored=", ".join(wrong))


def rows(found: dict[Case, Verdict]) -> list[list[str]]:
    """Return a row for each package: how many cases, how many ran, and how they went."""
    lines = []
    for package in sorted({case.package for case in found}):
        mine = [verdict for case, verdict in found.items() if case.package == package]
        ran = [verdict for verdict in mine if not verdict.not_run]
        stored = [verdict for verdict in ran if not verdict.stored and not verdict.lost]
        counts = (
            len(mine),
            len(ran),
            sum(not verdict.moved for verdict in ran),
            len(stored),
            sum(bool(verdict.lost) for verdict in ran),
            sum(bool(verdict.stored) for verdict in ran),
        )
        lines.append([package, *map(str, counts)])
    return lines


def read_found(place: Path | None) -> dict[Case, Verdict]:
    """Return what earlier runs have found."""
    if place is None or not place.exists():
        return {}
    lines = map(json.loads, place.read_text().splitlines())
    return {Case(**case): Verdict(**verdict) for case, verdict in lines}


#: What libraries say, each in its way, when they cannot fetch a file.
_FETCHES = re.compile(r"URLError|ConnectionError|couldn't connect|Retrying in")


def plain(reason: str) -> str:
    """Return a reason without places and addresses, which differ on each machine; short where a file is fetched."""
    if _FETCHES.search(reason):
        return "it fetches a file, and the sandbox has no network"
    return re.sub(r" \(/[^)]*\)?| at 0x[0-9a-f]+", "", reason).replace("<", "&lt;")


def told(found: dict[Case, Verdict]) -> str:
    """Return the table, and below it each case that is not simply right, with the reason."""
    header = ["package", "cases", "ran", "exact by undo, redo, checkout", "stored", "named as lost", "stored wrongly"]
    ran = sum(not verdict.not_run for verdict in found.values())
    parts = [table(header, rows(found)), f"{ran} of {len(found)} cases ran."]
    for title, field in (
        ("Not run", "not_run"),
        ("Wrong after undo, redo or checkout", "moved"),
        ("Stored wrongly", "stored"),
        ("Stored as the library's own pickle does, which is not quite the same", "by_its_own"),
        ("Named as lost", "lost"),
    ):
        lines = [
            f"- {case.package}, `{case.kind}`: {plain(getattr(verdict, field))}"
            for case, verdict in found.items()
            if getattr(verdict, field)
        ]
        if lines:
            parts.append(f"{title}:\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def main(arguments: Iterable[str]) -> int:
    """Run the cases, print each, and print or write the table; 1 when a state was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--packages", nargs="*")
    parser.add_argument("--seaborn-data", type=Path)
    parser.add_argument("--found", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args(list(arguments))
    found: dict[Case, Verdict] = {}
    policy = policy_with(asked.seaborn_data)
    for case in cases_of(asked.cases.read_text()):
        known = read_found(asked.found)  # another run may have found it meanwhile
        if case in known:
            found[case] = known[case]
        elif not asked.packages or case.package in asked.packages:
            found[case] = verdict = tried(case, policy)
            if asked.found is not None:
                with asked.found.open("a") as file:
                    file.write(json.dumps([asdict(case), asdict(verdict)]) + "\n")
            said = [f"{name}: {text}" for name, text in vars(verdict).items() if text]
            print(f"{case.package} {case.kind}: {'; '.join(said) or 'right'}", flush=True)
    text = told(found)
    print(f"\n{text}")
    if asked.write is not None:
        asked.write.write_text(text)
    return int(any(verdict.moved or verdict.stored for verdict in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
