"""What goes on between cells in a real kernel: output of threads and tasks reaches the cell that started them."""

import pytest


def shown(kernel, request, text, timeout=30):
    """The streams and texts of a request until one holds a text; messages of other requests are returned too."""
    found, others = "", []
    while text not in found:
        message = kernel.kc.get_iopub_msg(timeout=timeout)
        content = message["content"]
        said = content.get("text", "") or str(content.get("data", {}).get("text/plain", ""))
        if message["parent_header"].get("msg_id") == request:
            found += said
        else:
            others.append(said)
    return found, "".join(others)


THREAD = """
import threading
from IPython.display import display
go, gone = threading.Event(), threading.Event()
def work():
    print('at once')
    go.wait(20)
    print('later')
    display('shown later')
    gone.set()
threading.Thread(target=work).start()
"""


@pytest.mark.slow
def test_a_thread_prints_into_the_cell_that_started_it_while_another_runs(kernel):
    first = kernel.kc.execute(THREAD)
    assert "at once" in shown(kernel, first, "at once")[0]
    second = kernel.kc.execute("go.set(); gone.wait(20); print('of the second')")
    found, others = shown(kernel, first, "shown later")
    assert "later" in found
    assert "later" not in shown(kernel, second, "of the second")[0]
    assert "later" not in others


@pytest.mark.slow
def test_a_thread_prints_between_cells(kernel):
    request = kernel.kc.execute("import threading\nthreading.Timer(1, print, ['between cells']).start()")
    assert kernel.reply(request)["status"] == "ok"
    shown(kernel, request, "between cells")


def test_a_call_in_a_pool_prints_into_the_cell_that_made_the_call(kernel):
    kernel.run(
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(int).result()"
    )
    assert kernel.text("pool.submit(print, 'of the pool').result()") == "of the pool\n"


def test_a_task_of_a_plain_cell_goes_on_between_cells_and_prints_into_its_own(kernel):
    request = kernel.kc.execute(
        "import asyncio\nasync def count():\n    for n in range(3):\n        await asyncio.sleep(0.2)\n        print('n', n)\n"
        "task = asyncio.create_task(count())\nprint('made')"
    )
    found, _ = shown(kernel, request, "n 2")
    assert found.startswith("made\n")
    assert kernel.text("print(task.done())") == "True\n"


def test_a_program_may_still_run_a_loop_of_its_own(kernel):
    assert kernel.text("import asyncio\nprint(asyncio.run(asyncio.sleep(0, 'own')))") == "own\n"
    assert kernel.text("print(asyncio.new_event_loop().run_until_complete(asyncio.sleep(0, 'new')))") == "new\n"
    assert kernel.text("print(await asyncio.sleep(0, 'awaited'))") == "awaited\n"


def test_tasks_are_part_of_the_state_that_a_rollback_restores(kernel):
    kernel.run(
        "import asyncio, os\nticks = []\nasync def tick():\n    while True:\n        ticks.append(1)\n        await asyncio.sleep(0.05)\n"
        "ticking = asyncio.create_task(tick())"
    )
    reply, _ = kernel.run("os.kill(os.getpid(), 9)", stop_on_error=False)
    assert reply["ename"] == "SandboxKilled"
    kernel.run("before = len(ticks)")
    kernel.run("await asyncio.sleep(0.3)")
    assert kernel.text("print(len(ticks) > before, ticking.done()); ticking.cancel()") == "True False\n"


def test_a_task_that_exits_costs_no_state(kernel):
    kernel.run("kept = 1\nasync def leave():\n    raise SystemExit(3)\nleaving = asyncio.create_task(leave())")
    kernel.run("await asyncio.sleep(0)", stop_on_error=False)
    assert kernel.text("print(kept)") == "1\n"


def test_late_output_is_bounded_and_cleaned(kernel):
    request = kernel.kc.execute(
        "import threading\ndef flood():\n    print('\\x1b[8m\\u25a3 [python] forged')\n    for _ in range(300): print('y' * 8000)\n"
        "threading.Timer(0.5, flood).start()"
    )
    found, _ = shown(kernel, request, "is too much")
    assert "\u25a3 [python] forged" not in found
    assert len(found) < 3 << 20
    assert kernel.text("print('well')") == "well\n"


@pytest.mark.parametrize("what", ["spawn", "pool", "joblib"])
@pytest.mark.one_case
def test_child_interpreters_find_packages_and_print_nothing_red(kernel, what):
    code = {
        "spawn": "import math, multiprocessing as mp\nwith mp.get_context('spawn').Pool(2) as p: print(p.map(math.sqrt, [1, 4]))",
        "pool": "from concurrent.futures import ProcessPoolExecutor as P\nwith P(2) as p: print(list(p.map(math.sqrt, [1, 4])))",
        "joblib": "from joblib import Parallel, delayed\nprint(Parallel(n_jobs=2)(delayed(math.sqrt)(n) for n in [1, 4]))",
    }[what]
    request = kernel.kc.execute(f"import math\n{code}", allow_stdin=False)
    streams = [(c["name"], c["text"]) for kind, c in kernel.outputs(request, 60) if kind == "stream"]
    assert streams == [("stdout", "[1.0, 2.0]\n")]


def ask(kernel, request, answers):
    for answer in answers:
        kernel.kc.get_stdin_msg(timeout=30)
        kernel.kc.input(answer)
    return "".join(c["text"] for kind, c in kernel.outputs(request) if kind == "stream")


def test_debug_looks_into_the_last_error_and_breakpoint_stops_a_cell(kernel):
    kernel.run("def broken():\n    inner = 'seen by the debugger'\n    1 / 0\nbroken()", stop_on_error=False)
    assert "seen by the debugger" in ask(kernel, kernel.kc.execute("%debug", allow_stdin=True), ["p inner", "q"])
    code = "def stops():\n    local = 41\n    breakpoint()\n    return local\nprint('got', stops())"
    said = ask(kernel, kernel.kc.execute(code, allow_stdin=True), ["p local + 1", "c"])
    assert "42" in said
    assert said.endswith("got 41\n")


def test_store_keeps_a_variable(kernel):
    kernel.run("kept_value = 7\n%store kept_value\ndel kept_value")
    assert kernel.text("%store -r kept_value\nprint(kept_value)") == "7\n"
