"""What a cell changed: variables by name and value, files by their lines; measured in forks that leave no trace."""

import pytest

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.node import Changes
from sandbox_kernel.session.tree.variables import MOST_SEEN, changes, same, size_of
from sandbox_kernel.session.worker.messages import Looked, parse
from tests.session.conftest import Open, Value


def test_what_was_seen_only_by_its_address_is_never_called_the_same() -> None:
    assert same(("list", "7", ""), ("list", "7", "")) is True
    assert same(("generator", "@7", ""), ("generator", "@7", "")) is None
    assert same(("generator", "@7", ""), ("generator", "@8", "")) is False
    assert same(("generator", "@7", ""), ("generator", "@7:1a", "")) is None
    assert [size_of(("list", mark, "")) for mark in ("@7", "@7:1a", "0123456710", "012345671z")] == [None, 26, 16, None]
    assert same(("list", "7", ""), ("list", "@8", "")) is None
    assert same(("list", "7", ""), ("int", "@8", "")) is False


def test_what_a_look_may_lack_is_not_called_added_or_removed() -> None:
    many = {f"v{number}": ("int", "1", "1") for number in range(MOST_SEEN)}
    few = {"v1": ("int", "2", "2"), "x": ("int", "1", "1")}
    grown, shrunk = changes(few, many), changes(many, few)
    assert (grown.removed, grown.changed, len(grown.added)) == ((), ("v1",), MOST_SEEN - 1)
    assert (shrunk.added, shrunk.changed, len(shrunk.removed)) == ((), ("v1",), MOST_SEEN - 1)
    assert grown.unknown == shrunk.unknown == "only the first 10000 variables were looked at"
    assert not changes(few, {}).unknown


def test_the_history_of_more_than_a_thousand_variables_names_only_what_changed(session: Session) -> None:
    session.run("for i in range(1500): globals()[f'v{i}'] = i")
    for cell in ("v1400 = -1", "v1 = -1", "zzz = 5", "del v1400"):
        session.run(cell)
    found = [node.changed for node in session.history()]
    assert len(found[1].added) == 1501
    assert found[2:] == [
        Changes(changed=("v1400",)),
        Changes(changed=("v1",)),
        Changes(added=("zzz",)),
        Changes(removed=("v1400",)),
    ]
    assert dict(session.diff(1, 3).changed) == {"v1": ("int 1", "int -1"), "v1400": ("int 1400", "int -1")}
    assert [node.id for node in session.when("v1400")] == [1, 2, 5]


def test_a_class_that_no_cell_touched_is_not_called_changed(session: Session) -> None:
    code = """
class C:
    def __init__(self): self.v = 1
    def __repr__(self): return "C"
class L(dict):
    def show(self): return ("a rather long constant", 12345678, "v", len(self))
o = C(); l = L()
"""
    session.run(code)
    for cell in (
        "o.v = 2",
        "repr(o)",
        "import json",
        "len(l)",
        "C",
        "l['a'] = 1",
        "kept = l.show()  # its constants are used elsewhere too",
        "o.v = 3",
    ):
        session.run(cell)
    assert [node.id for node in session.when("C")] == [1]
    assert [node.id for node in session.when("L")] == [1]
    assert [node.id for node in session.when("o")] == [1, 2, 9]


def test_attributes_of_a_function_and_bases_of_a_class_belong_to_them(session: Session) -> None:
    session.run("def g(): return 1\ng.n = 1\nclass O: pass\nclass P(O): pass\nclass Q(O): pass")
    session.run("g.n = 2")
    session.run("Q.__bases__ = (P,)")
    session.run("unrelated = 1")
    assert [node.changed.changed for node in session.history()[2:]] == [("g",), ("Q",), ()]


@pytest.mark.parametrize(
    "found",
    [
        b"[]",
        b'{"x": ["int", "1"]}',
        b'{"x": ["int", "1", 2]}',
        b"{%s}" % b",".join(b'"x%d": ["", "", ""]' % number for number in range(MOST_SEEN + 1)),
    ],
)
def test_a_forged_look_is_refused(found: bytes) -> None:
    with pytest.raises(SessionError, match=r"\$\.found"):
        parse(b'{"op": "look", "cell": 1, "found": %s}' % found)


def test_names_and_words_that_cannot_be_shown_are_left_out() -> None:
    message = parse(b'{"op": "look", "cell": 1, "found": {"a b": ["x", "1", ""], "ok": ["t\\u001b[31m", "1", "\\n"]}}')
    assert isinstance(message, Looked) and message.found == {"ok": ("t[31m", "1", "")}


def test_each_cell_says_what_it_changed_also_in_place_and_through_another_name(session: Session) -> None:
    session.run("x = [1]; y = 'a'; import math")
    session.run("z = x; z.append(2); open('f', 'w').write('1')")
    session.run("del y\ndef f(): return 1")
    session.run("def f(): return 2\nclass A:\n    n = 1")
    session.run("A.n = 2")
    session.run("print(x)")
    found = [node.changed for node in session.history()]
    assert set(found[1].added) == {"x", "y", "math"}
    assert (found[2].added, found[2].changed) == (("z",), ("x",))
    assert [change.path for change in found[2].files] == ["f"]
    assert (found[3].added, found[3].removed) == (("f",), ("y",))
    assert (found[4].added, found[4].changed) == (("A",), ("f",))
    assert found[5].changed == ("A",)
    assert not found[6]
    assert [node.id for node in session.when("x")] == [1, 2]
    assert [node.id for node in session.when("y")] == [1, 3]


def test_looking_runs_code_of_the_variables_and_leaves_no_trace_of_it(session: Session, value: Value) -> None:
    session.run(
        "class Loud:\n"
        "    seen = []\n"
        "    def __reduce__(self):\n"
        "        self.seen.append(1); print('seen'); return (list, ())\n"
        "loud = Loud()"
    )
    session.run("n = 1")
    assert session.history()[1].changed.added
    assert value(session, "loud.seen, n") == "([], 1)"
    assert session.run("pass").stdout == ""


@pytest.mark.slow
def test_a_variable_whose_look_never_ends_does_not_hold_up_the_session(session: Session, value: Value) -> None:
    session.run("x = 1\nclass Endless:\n    def __reduce__(self):\n        while True: pass\nendless = Endless()")
    session.run("x = 2")
    nodes = session.history()
    assert "x" in nodes[1].changed.added
    assert value(session, "x") == "2"


def test_a_difference_has_values_before_and_after_and_lines_of_files(session: Session) -> None:
    session.run("x = 1; gone = 'old'; open('f', 'w').write('one\\n')")
    session.checkpoint("first")
    session.run("x = 2; del gone; new = [1, 2]; open('f', 'a').write('two\\n'); open('g', 'wb').write(b'\\0')")
    found = session.diff("first")
    assert (dict(found.added), dict(found.removed)) == ({"new": "list [1, 2]"}, {"gone": "str 'old'"})
    assert found.changed["x"] == ("int 1", "int 2")
    assert [(file.path, file.kind) for file in found.files] == [("f", "modified"), ("g", "created")]
    assert "+two" in found.files[0].patch
    assert not session.diff(2, 2)
    back = session.diff(2, 1)
    assert back.removed["new"] == "list [1, 2]"
    assert "~ x: int 1 → int 2" in str(found)


def test_candidates_run_from_one_state_and_one_is_kept(session: Session, value: Value) -> None:
    session.run("data = [3, 1, 2]; open('log', 'w').write('start ')")
    tried = session.explore(
        [
            "best = min(data); open('log', 'a').write('min')",
            "best = max(data); data.clear()",
            "1 / 0",
            "exit(",
            "import os; os._exit(3)",
        ]
    )
    assert [result.ok for result in tried.results] == [True, True, False, False, False]
    assert value(session, "data, 'best' in dir(), open('log').read()") == "([3, 1, 2], False, 'start ')"
    tried.keep(1)
    assert value(session, "data, best, open('log').read()") == "([], 3, 'start ')"
    tried.keep(0)
    assert value(session, "data, best, open('log').read()") == "([3, 1, 2], 1, 'start min')"
    with pytest.raises(InvalidRequest, match="candidate 4 left no state"):
        tried.keep(4)
    tried.discard()
    assert value(session, "'best' in dir()") == "False"
    assert not any(node.alive for node in session.history() if node.id in tried.nodes)


def test_a_wrong_exploration_runs_nothing(open_one: Open, session: Session) -> None:
    for wrong in ([], "x = 1", ["x = 1", ""]):
        with pytest.raises(Exception, match=r"explore takes a list|code"):
            session.explore(wrong)  # type: ignore[arg-type]
    assert len(session.history()) == 1
    with pytest.raises(SessionError, match="needs a copy of the present state"):
        open_one(checkpoints=0).explore(["x = 1"])
