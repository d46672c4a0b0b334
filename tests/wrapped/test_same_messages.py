"""A wrapped ipykernel's messages, one by one, against those of the same kernel without walls, over 100 cells."""

import pytest

from sandbox_kernel.wrapped.relaying.cleaning import OutputCleaner, clean_reply
from tests.wrapped.conftest import WrappedClient

KINDS = (
    "x{n} = {n} * 2",
    "x{n} = {n}; x{n} + 1",
    "print('line', {n})",
    "import sys; print('err {n}', file=sys.stderr)",
    "print('a' * 1000); print('ü€ \\U0001f600', {n})",
    "raise ValueError('number {n}')",
    "1 / ({n} - {n})",
    "from IPython.display import display; display({{'a': {n}}}, [1, 2, {n}])",
    "from IPython.display import clear_output; print('gone'); clear_output(wait=True); print('kept {n}')",
    "h = display('first {n}', display_id='d{n}'); h.update('second {n}')",
    "def f{n}(a, *, b=2):\n    return a + b\nf{n}({n})",
    "class C{n}:\n    def __repr__(self): return 'C {n}'\nC{n}()",
    "import asyncio; await asyncio.sleep(0); 'awaited {n}'",
    "[i for i in range(50)], '{n}'",
    "import json; json.dumps({{'k': [None, True, {n}.5]}})",
    "from IPython.display import HTML; HTML('<b>bold {n}</b>')",
    "from IPython.display import Latex; Latex(r'$\\frac{{1}}{{{n}2}}$')",
    "from IPython.display import JSON; JSON({{'n': {n}}})",
    "print('\\x1b[32mgreen {n}\\x1b[0m')",
    "def broken(:",
)
CELLS = [kind.format(n=n) for n in range(5) for kind in KINDS]


@pytest.fixture(scope="module")
def bare():
    client = WrappedClient("python3")
    yield client
    client.close()


def joined_streams(outputs):
    """How printed text is cut into messages depends on time; what was printed in one go counts as one message."""
    found = []
    for kind, content in outputs:
        if kind == "stream" and found and found[-1][0] == "stream" and found[-1][1]["name"] == content["name"]:
            found[-1] = (kind, {**content, "text": found[-1][1]["text"] + content["text"]})
        else:
            found.append((kind, content))
    return found


def run(client, code):
    request = client.kc.execute(code, user_expressions={"e": "1 + 1"}, allow_stdin=False)
    outputs = client.outputs(request, 60)
    return client.reply(request), joined_streams(outputs)


@pytest.mark.slow
def test_the_messages_of_a_hundred_cells_are_those_of_the_bare_kernel_after_the_cleaner(kernel, bare):
    assert len(CELLS) == 100
    changed = set()
    for number, code in enumerate(CELLS):
        reply, outputs = run(kernel, code)
        bare_reply, bare_outputs = run(bare, code)
        cleaner = OutputCleaner()
        assert outputs == [(kind, cleaner.clean(kind, content)) for kind, content in bare_outputs], code
        assert cleaner.take_removed() == [], code
        assert reply == clean_reply("execute_reply", bare_reply, None), code
        if outputs != bare_outputs:
            changed.add(KINDS[number % len(KINDS)])
    # HTML stands in a frame.
    assert changed == {kind for kind in KINDS if "HTML(" in kind}


@pytest.mark.parametrize("what", ["kernel_info", "is_complete", "history", "inspect"])
def test_the_other_replies_hold_what_the_bare_kernel_says(kernel, bare, what):
    ask = {
        "kernel_info": lambda kc: kc.kernel_info(),
        "is_complete": lambda kc: kc.is_complete("for x in y:"),
        "history": lambda kc: kc.history(hist_access_type="search", pattern="no such line"),
        "inspect": lambda kc: kc.inspect("len", 3),
    }[what]
    ours, theirs = kernel.reply(ask(kernel.kc)), bare.reply(ask(bare.kc))
    expected = clean_reply(f"{what}_reply", theirs, None)
    # The banner ends with a tip that is drawn by lot.
    assert {**ours, "banner": ""} == {**expected, "banner": ""}


def test_comm_info_names_no_comm_as_that_of_the_bare_kernel(kernel, bare):
    assert kernel.reply(kernel.kc.comm_info()) == bare.reply(bare.kc.comm_info()) == {"status": "ok", "comms": {}}
