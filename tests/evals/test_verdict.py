"""A verdict is about one candidate and is the judge's: what a candidate does to its process, its files and its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox, SandboxPolicy
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.evals import check_correctness, check_samples, code_eval, judge_program

PROBLEM = {
    "task_id": "test/0",
    "prompt": "def add(a, b):\n",
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(5, 7) == 12\n",
}
WRONG = "    return 'wrong'\n"

#: What a candidate can do that solves nothing.
CHEATS = {
    "an object that equals everything": "    return type('E', (), {'__eq__': lambda s, o: True})()\n",
    "a number that equals everything": "    return type('E', (int,), {'__eq__': lambda s, o: True})(0)\n",
    "a list of such": "    return [type('E', (), {'__eq__': lambda s, o: True})()]\n",
    "passed to every descriptor": WRONG
    + "import os\nfor f in range(64):\n    try: os.write(f, b'\\n\"passed\"\\n')\n    except OSError: pass\n",
    "an answer ahead of the question": WRONG
    + "import os\nfor f in range(3, 64):\n    try: os.write(f, b'[\"value\", null, null]\\n' * 3)\n"
    "    except OSError: pass\n",
    "functions of the main module": WRONG + "import __main__\n__main__.Judge.ask = lambda *a, **o: 3\n",
    "report in a calling frame": WRONG + "import sys\nf = sys._getframe()\nwhile f:\n"
    "    if 'report' in f.f_locals: f.f_locals['report']('passed')\n    f = f.f_back\n",
    "other code for the check": WRONG + "import sys\ndef tr(f, e, a):\n"
    "    if 'check' in f.f_globals: f.f_globals['check'] = lambda c: None\n    return tr\nsys.settrace(tr)\n",
    "a check of its own": WRONG + "def check(candidate): pass\n",
    "builtins of its own": WRONG + "import builtins\nbuiltins.AssertionError = type('X', (BaseException,), {})\n",
    "a child that answers": WRONG + "import os, sys\nif os.fork(): os._exit(0)\n",
    "an end without a verdict": "    import os; os._exit(0)\n",
    "an exit": "    raise SystemExit(0)\n",
    "a dead judge": WRONG + "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
    "a judge that is interrupted": "    import os, signal\n    os.kill(os.getppid(), signal.SIGINT)\n",
    "a judge that runs out of time": "    import os, signal\n    os.kill(os.getppid(), signal.SIGALRM)\n",
    "tests from frames, objects and memory": """    import gc, os, re, sys
    places, frame = [repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, tuple)) and len(o) < 99], 0
    for path in ('self/mem', 'self/maps', f'{os.getppid()}/mem', f'{os.getppid()}/fd/0', '1/fd/0', '1/mem'):
        try: places.append(open('/proc/' + path, 'rb').read(1 << 20).decode('latin-1'))
        except OSError: pass
    for found in re.finditer(r'candidate\\\\(([0-9, ]+)\\\\) == ([0-9]+)', ' '.join(places)):
        if eval('(' + found[1] + ')') == (a, b): return eval(found[2])
""",
}


@pytest.fixture(scope="module", params=["auto", "landlock"])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox() as made:
        made.backend = ProcessBackend(enforcer=request.param, policy=made.policy)
        assert check_correctness(PROBLEM, "    return a + b\n", 20.0, box=made)["passed"]
        yield made


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_candidate_that_solves_nothing_does_not_pass(cheat: str, box: Sandbox) -> None:
    result = check_correctness(PROBLEM, CHEATS[cheat], 20.0, box=box)["result"]
    assert result == "timed out" or result.startswith("failed: ")


#: What runs where a judge imports it: it prints the word of the verdict that it finds in standard input.
_PLANT = """    return None
import os
for name in ('json', 'ctypes', 'signal', 'operator', 'random', 'ast', 'builtins', 'sitecustomize'):
    open(name + '.py', 'w').write('''
import os
raw = os.read(0, 1 << 16)
open('/box/stolen', 'ab').write(raw)
os.write(1, b'\\\\n' + raw.partition(b'"word": "')[2][:32] + b'"passed"\\\\n')
os._exit(0)
''')
"""


@pytest.mark.parametrize("whose", ["ours", "the caller's"])
def test_a_sample_decides_about_no_other(whose: str) -> None:
    honest, wrong = "    return a + b\nimport json, random\n", "    return None\n"
    test = f"import random\n{PROBLEM['test']}"
    completions = [_PLANT, wrong, honest, f"{wrong}import os\nassert not os.listdir()\n", honest]
    samples = [{"task_id": "test/0", "completion": each} for each in completions]
    with Sandbox() as mine:
        mine.write_file("data.txt", b"kept")
        found = check_samples(
            {"test/0": {**PROBLEM, "test": test}},
            samples,
            timeout=20.0,
            max_workers=1,
            box=None if whose == "ours" else mine,
        )
        assert [each["passed"] for each in found] == [False, False, True, False, True]
        assert code_eval(["assert add(1, 2) == 3"], [["def add(a, b): return 9"]], k=[1])[0] == {"pass@1": 0.0}
        assert [each.name for each in mine.list_dir(".")] == ["data.txt"]


def test_a_judge_imports_nothing_that_the_callers_sandbox_holds() -> None:
    with Sandbox() as mine:
        mine.run(_PLANT.partition("\n")[2])
        assert check_correctness(PROBLEM, "    return a - b\n", 20.0, box=mine)["result"] == "failed: "
        test = f"import random\n{PROBLEM['test']}"
        assert check_correctness({**PROBLEM, "test": test}, "    return a + b\n", 20.0, box=mine)["passed"]


def test_a_sandbox_in_which_candidates_could_leave_something_is_refused(tmp_path: Path) -> None:
    for policy in (
        SandboxPolicy.preset("standard").allow_read_write(tmp_path),
        SandboxPolicy.preset("standard").mount(tmp_path, "/data", writable=True),
    ):
        with Sandbox(policy) as shared, pytest.raises(InvalidRequest, match="the next candidate"):
            check_correctness(PROBLEM, "", 1.0, box=shared)
    with Sandbox(here=tmp_path) as shared, pytest.raises(InvalidRequest, match="without here="):
        check_correctness(PROBLEM, "", 1.0, box=shared)
    with Sandbox(SandboxPolicy()) as alone, pytest.raises(InvalidRequest, match="allow_process_spawn"):
        check_correctness(PROBLEM, "", 1.0, box=alone)


@pytest.mark.parametrize(
    "asked", ["def root(low):\n    '''A root of value.'''\n", "def root(low):\n", "# Define root.\n"]
)
def test_names_of_the_prompt_are_the_prompts(asked: str) -> None:
    problem = {
        "task_id": "poly",
        "prompt": f"def value(x):\n    return x * x - 4\n\n\n{asked}",
        "entry_point": "root",
        "test": "def check(candidate):\n    assert abs(value(candidate(0))) < 1e-6\n",
    }
    begun = "" if asked.startswith("def") else "def root(low):\n"
    assert check_correctness(problem, f"{begun}    return 2.0\n", 20.0)["passed"]
    lie = f"{begun}    return 7\ndef value(x): return 0\ndef abs(x): return 0\n"
    assert not check_correctness(problem, lie, 20.0)["passed"]


@pytest.mark.parametrize(
    ("candidate", "test"),
    [
        ("def f(x): return x", "for v in (None, True, 1, 10**5000, 0.5, 'ü\\0\\ud800', b'x'): assert f(v) == v"),
        ("def f(x): return x", "for v in ([1], (1, (2,)), {1}, {(1, 2): [3]}, 1j, range(3)): assert f(v) == v"),
        ("def f(x): return x", "import math\nassert type(f(True)) is bool and math.isnan(f(math.nan))"),
        ("from collections import Counter\ndef f(x): return Counter(x)", "assert f('aab') == {'a': 2, 'b': 1}"),
        ("def f(x): x.sort()", "values = [3, 1]\nassert f(values) is None\nassert values == [1, 3]"),
        ("def f():\n    yield 1\n    yield 2", "assert list(f()) == [1, 2]"),
        ("def f(a, *, b): return a - b", "assert f(3, b=1) == 2"),
        ("class P:\n    def __init__(self, x): self.x = x\n    def twice(self): return 2 * self.x", "p = P(4)\nassert (p.x, p.twice()) == (4, 8)"),
        ("class P:\n    def __init__(self, x): self.x = x\ndef f(ps): return [p.x for p in ps]", "assert f([P(1)]) == [1]"),
        ("def f(x): raise ValueError('no')", "try:\n    f(1)\n    assert False\nexcept ValueError as e: assert str(e) == 'no'"),
        ("class Bad(KeyError): pass\ndef f(): raise Bad('x')", "try:\n    f()\n    assert False\nexcept Bad: pass"),
        ("def f(): return b'\\xff'.decode()", "try:\n    f()\n    assert False\nexcept UnicodeDecodeError: pass"),
        ("def sum(a, b): return a * b", "assert sum(2, 5) == 10"),
        ("COUNT = 0\ndef f():\n    global COUNT\n    COUNT += 1", "f()\nf()\nassert COUNT == 2"),
        ("import re\ndef f(s): return re.match('a', s)", "assert f('ab') and not f('b')"),
        ("def f(): open('made', 'w').write('x')", "f()\nassert open('made').read() == 'x'"),
        ("numpy = __import__('numpy')\ndef f(x): return numpy.mean(x)", "assert abs(f([1, 2]) - 1.5) < 1e-9"),
    ],
)  # fmt: skip
def test_an_honest_candidate_passes(candidate: str, test: str) -> None:
    if "numpy" in candidate:
        pytest.importorskip("numpy")
    assert judge_program(candidate, test, 20.0).result == "passed"


@pytest.mark.parametrize(
    ("candidate", "test", "why"),
    [
        ("def f(): return object()", "assert f() == 1", "an? object, which is no plain value"),
        ("def f(): return object()", "assert f() != 1", "an? object, which is no plain value"),
        ("def f(g): return g(1)", "assert f(lambda x: x) == 1", "plain values, and no function"),
        ("def abs(x): return 0\ndef f(): return 9", "assert abs(f() - 1) < 1e-6", ""),
        ("def f(): return 'x' * (65 << 20)", "assert f()", "timed out"),
    ],
)
def test_what_is_no_plain_value_is_a_failure_that_says_so(candidate: str, test: str, why: str) -> None:
    result = judge_program(candidate, test, 30.0).result
    assert result != "passed"
    assert re.search(why, result)
