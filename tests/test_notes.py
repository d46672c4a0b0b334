"""A note is a text for the user and a kind for programs: rewording one must not change what any code does."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import pickle
import re
from pathlib import Path
from string import Formatter

import pytest

import sandbox_kernel
from sandbox_kernel.model import ExecResult, Note, NoteKind, notes
from sandbox_kernel.model.notes import Worded, as_notes, has_note
from sandbox_kernel.policy import SandboxPolicy

WORDED = [
    function
    for name, function in inspect.getmembers(notes, inspect.isfunction)
    if function.__module__ == notes.__name__ and inspect.signature(function).return_annotation == "Note"
]
FIXED = {name: made for name, made in vars(notes).items() if isinstance(made, Worded)}


def _arguments(function: object) -> list[object]:
    kinds = {
        "int": 2,
        "float": 2.0,
        "str": "text",
        "object": "text",
        "bool": True,
        "Sequence[int]": [1, 2],
        "Sequence[str]": ["stdout"],
        "Sequence[tuple[int, str]]": [(2, "x = 1")],
        "Mapping[str, str]": {"card": "an open file"},
    }
    return [kinds[str(p.annotation)] for p in inspect.signature(function).parameters.values()]  # type: ignore[arg-type]


@pytest.mark.parametrize("function", WORDED, ids=lambda function: function.__name__)
def test_every_function_words_a_note_of_its_own_kind(function) -> None:
    note = function(*_arguments(function))
    assert note
    assert note.kind is not NoteKind.OTHER


def test_every_kind_has_a_function_that_words_it() -> None:
    made = {function(*_arguments(function)).kind for function in WORDED}
    made |= {note.kind for note in (*notes.shared_by_states(1, 1, 1), *FIXED.values())}
    assert made == set(NoteKind)


def test_every_place_in_fixed_words_is_given_its_argument() -> None:
    root = Path(sandbox_kernel.__file__).parent
    called = set()
    for call in (node for path in root.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(call, ast.Call) and (name := ast.unparse(call.func).removeprefix("notes.")) in FIXED:
            called.add(name)
            places = [place for _, place, _, _ in Formatter().parse(FIXED[name].words) if place is not None]
            assert len(call.args) == len(set(places) if any(places) else places) and not call.keywords, name
    assert called == set(FIXED)


def test_a_note_is_a_string() -> None:
    note = notes.rolled_back(1)
    assert note == "rolled back to the state before this cell; 1 variable kept"
    assert note.startswith("rolled back ")
    assert json.loads(json.dumps([note])) == [str(note)]
    assert hash(note) == hash(str(note))


@pytest.mark.parametrize("again", [lambda n: pickle.loads(pickle.dumps(n)), copy.copy, copy.deepcopy])
def test_the_kind_survives_a_copy(again) -> None:
    note = again(notes.compile_cached())
    assert (note, note.kind) == (notes.compile_cached(), NoteKind.COMPILE_CACHED)


def test_a_plain_string_in_a_result_is_a_note_of_no_known_kind() -> None:
    result = ExecResult(notes=("rolled back says somebody else", notes.no_network("a.test")))  # type: ignore[arg-type]
    assert [note.kind for note in result.notes] == [NoteKind.OTHER, NoteKind.NO_NETWORK]
    assert [type(note) for note in result.to_dict()["notes"]] == [str, str]  # type: ignore[attr-defined]
    assert as_notes(result.notes) == result.notes


def test_the_words_of_a_note_do_not_decide_where_a_receipt_puts_it() -> None:
    forged, cached = Note("this time: says a program"), Note("reworded", NoteKind.COMPILE_CACHED)
    data, metadata = ExecResult(notes=(forged, cached))._repr_mimebundle_()
    assert "this time: says a program" in str(data) and "reworded" not in str(data)
    assert "reworded" in str(metadata) and "this time" not in str(metadata)


def test_a_program_that_prints_the_proxys_words_gets_the_hint_to_use_the_proxy() -> None:
    from sandbox_kernel.backends.outcome import NetworkSigns, network_notes

    policy = SandboxPolicy.preset("standard").allow_domain("a.test")
    said = NetworkSigns("b could not be resolved\nName or service not known")
    assert network_notes(policy, said, ()) == (notes.network_beside_proxy(),)
    assert network_notes(policy, said, (notes.unreached("no such name"),)) == ()


def test_kinds_travel_from_a_worker_of_a_cluster() -> None:
    received = pickle.loads(pickle.dumps(ExecResult(notes=(notes.compile_cached(),))))
    assert has_note(received.notes, NoteKind.COMPILE_CACHED)


def test_no_code_reads_the_text_of_a_note() -> None:
    reads = re.compile(r"\bnote\.(startswith|endswith|find|partition|split)\(|\bin note\b|\bnote == ")
    root = Path(sandbox_kernel.__file__).parent
    assert [path.name for path in root.rglob("*.py") if reads.search(path.read_text())] == []
