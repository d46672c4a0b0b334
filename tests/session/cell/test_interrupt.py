"""Stopping a cell: KeyboardInterrupt where it can be had, a rollback where the cell does not end."""

import asyncio
import textwrap
import threading
from collections.abc import Callable

import pytest

from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.session.session import Session

Open = Callable[..., Session]
Value = Callable[[Session, str], str]

SOFT = {
    "sleep": "import time\nprint('go\\n', end='')\ntime.sleep(1000)",
    "loop": "print('go\\n', end='')\nwhile True: pass",
    "printing": "print('go\\n', end='')\nwhile True: print('x' * 1000)",
    "subprocess": "import subprocess\nprint('go\\n', end='')\nsubprocess.run(['sleep', '1000'])",
    "shell": "print('go\\n', end='')\n!sleep 1000",
    "await": "import asyncio\nprint('go\\n', end='')\nawait asyncio.sleep(1000)",
    "thread": "import threading\nprint('go\\n', end='')\nthreading.Event().wait()",
    "numpy": "import numpy as np; a = np.random.rand(500_000)\nprint('go\\n', end='')\nwhile True: np.sort(a)",
    "regex": "import re\nprint('go\\n', end='')\nre.match(r'(a|a)*$', 'a' * 40 + 'b')",
}


def interrupted(session: Session, code: str) -> ExecResult:
    """Run a cell and interrupt it once it has said that it goes."""
    return session.run(code, timeout=60, on_output=lambda stream, text: session.interrupt() and None)


def test_an_interrupt_is_a_keyboard_interrupt_and_keeps_what_was_done(session: Session, value: Value) -> None:
    for what, code in SOFT.items():
        result = interrupted(session, f"done = '{what}'\n{code}\nnever = 1")
        seen = (what, result.notes, result.stderr[-500:])
        assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False), seen
        assert result.stdout.startswith("go\n"), what
        assert value(session, "done, 'never' in globals()") == f"('{what}', False)"


def test_an_await_that_was_interrupted_does_not_go_on_in_a_later_cell(session: Session, value: Value) -> None:
    assert session.run(
        "import asyncio; wake = asyncio.Event(); other = asyncio.create_task(wake.wait()); await asyncio.sleep(0)"
    ).ok
    # The loop says that it has nothing to do but wait, so that is where the interrupt meets it.
    code = "asyncio.get_running_loop().call_soon(print, 'go')\nawait wake.wait()\nprint('went on')"
    result = interrupted(session, code)
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False)
    assert session.run("wake.set()\nawait asyncio.sleep(0.01)").stdout == ""
    # A task of the user's own is theirs.
    assert value(session, "other.done(), other.cancelled()") == "(True, False)"


def test_an_interrupted_cell_says_where_it_was_and_not_where_the_loop_did(session: Session) -> None:
    # One statement: between two of them the interrupt would meet IPython.
    result = interrupted(session, "import time\nif time:\n    print('go\\n', end='')\n    time.sleep(1000)")
    assert result.error is not None
    assert result.error.ename == "KeyboardInterrupt"
    assert "Cell In[1], line" in result.stderr
    code = "import asyncio\nasync def wait():\n    print('go\\n', end='')\n    await asyncio.sleep(1000)\nawait wait()"
    result = interrupted(session, code)
    assert "await wait()" in result.stderr and "in wait()" in result.stderr
    for frame_of_the_loop in ("run_until_complete", "run_forever", "_run_once", "run_to_end"):
        assert frame_of_the_loop not in result.stderr


@pytest.mark.parametrize(
    "stubborn",
    [
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('go\\n', end='')\nwhile True: pass",
        "while True:\n    try:\n        print('go')\n        while True: pass\n    except BaseException: pass",
        "import ctypes\nctypes.CDLL(None).system(b\"trap '' INT; echo go; while :; do :; done\")",
    ],
    ids=["ignored", "swallowed", "c code"],
)
@pytest.mark.slow
def test_a_cell_that_does_not_end_when_it_is_interrupted_is_rolled_back(
    open_one: Open, value: Value, stubborn: str
) -> None:
    session = open_one(memory_mb=1024)
    session.run("kept = 1")
    result = interrupted(session, f"kept = 2\n{stubborn}")
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, True)
    assert "the cell did not end when it was interrupted" in result.notes
    assert value(session, "kept") == "1"


def test_an_interrupt_while_the_cell_waits_for_input(session: Session, value: Value) -> None:
    asked = threading.Event()

    def never(prompt: str, password: bool) -> str:
        asked.set()
        threading.Event().wait()
        raise AssertionError

    def stop() -> None:
        asked.wait()
        session.interrupt()

    threading.Thread(target=stop).start()
    result = session.run("x = 1; input('? ')", timeout=60, on_input=never)
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False)
    assert session.run("y = input()", on_input=lambda *_: "answer").ok
    assert value(session, "x, y") == "(1, 'answer')"


def test_a_keyboard_interrupt_of_the_one_who_is_asked_interrupts_the_cell_and_one_between_cells_nothing(
    session: Session,
) -> None:
    def refuse(prompt: str, password: bool) -> str:
        raise KeyboardInterrupt

    result = session.run("input()", on_input=refuse)
    assert result.status is Status.INTERRUPTED
    assert session.interrupt() is False, "nothing runs"
    assert session.run("1").ok


@pytest.mark.slow
def test_the_users_thinking_time_is_not_the_cells(session: Session) -> None:
    hurry = threading.Event()

    def think(prompt: str, password: bool) -> str:
        hurry.wait(4.0)
        return "slow"

    result = session.run("input()", timeout=3, on_input=think)
    assert result.ok, result.notes


@pytest.mark.parametrize(
    "before",
    ["pass", "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"],
    ids=["alone", "beside a thread"],
)
@pytest.mark.slow
def test_every_interrupt_meets_its_own_cell_only(session: Session, value: Value, before: str) -> None:
    """Late interrupts are the classic race: each cell prints its end and is interrupted at that very moment.

    A thread takes those that the cell does not: they must not come out in the loop between the cells.
    """
    assert session.run(before).ok
    for number in range(30):
        result = session.run(
            f"n = {number}; print('{number}\\n', end='')", on_output=lambda *_: session.interrupt() and None
        )
        assert result.stdout == f"{number}\n"
        assert result.status in (Status.OK, Status.INTERRUPTED)
        assert (result.rolled_back, result.notes) == (False, ())
        assert value(session, "n") == str(number)
    assert session.run("import time; time.sleep(0.05)").ok


@pytest.mark.slow
def test_an_interrupt_that_meets_no_line_of_the_cell_is_a_keyboard_interrupt_too(session: Session) -> None:
    """It comes with the first breath of the cell, where the code is still IPython's."""
    for _ in range(10):
        timer = threading.Thread(target=lambda: [None for _ in iter(session.interrupt, True)])
        timer.start()
        result = session.run("import time; time.sleep(1000)", timeout=60)
        timer.join()
        assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False)
        assert result.error is not None
        assert result.error.ename == "KeyboardInterrupt"
        assert "Warning" not in result.stderr


@pytest.mark.slow
def test_an_interrupt_just_before_a_system_call_is_not_lost(session: Session, value: Value) -> None:
    """Python notes the signal and sleeps on. A handler that takes the first one makes the same happen every time."""
    code = """
        import signal, time
        def lose(*_):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGINT, lose)
        done = 1
        print('go')
        time.sleep(1000)
    """
    result = interrupted(session, textwrap.dedent(code))
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False), result.notes
    assert value(session, "done") == "1"


def test_an_interrupt_in_a_callback_after_the_cell_is_an_interrupt(session: Session, value: Value) -> None:
    assert session.run(
        "def late():\n    get_ipython().events.unregister('post_execute', late)\n    print('go\\n', end='')\n    while True: pass"
    ).ok
    result = interrupted(session, "get_ipython().events.register('post_execute', late); done = 1")
    assert (result.status, result.rolled_back, result.stdout) == (Status.INTERRUPTED, False, "go\n")
    assert value(session, "done") == "1"


def test_control_c_in_the_callers_terminal_reaches_the_cell_and_then_the_caller(session: Session, value: Value) -> None:
    import _thread

    def press(stream: str, text: str) -> None:
        _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        session.run("x = 1; print('go\\n', end='')\nimport time; time.sleep(1000)", timeout=60, on_output=press)
    assert value(session, "x") == "1"


def test_cancelling_the_task_or_an_event_interrupts_the_cell_and_the_session_goes_on(session: Session) -> None:
    async def main() -> None:
        going, cancel = asyncio.Event(), asyncio.Event()
        code = "x = 1; print('go\\n', end='')\nwhile True: pass"
        task = asyncio.ensure_future(session.arun(code, on_output=lambda *_: going.set()))
        await going.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.arun("x")).displays[-1].data["text/plain"] == "1"
        stopped = await session.arun(code, on_output=lambda *_: cancel.set(), cancel=cancel)
        assert stopped.status is Status.INTERRUPTED

    asyncio.run(main())


async def behind(session: Session, stop: Callable[[asyncio.Task[ExecResult], asyncio.Event], object]) -> list[object]:
    """Run ``x = 1`` in a cell that waits for input, stop ``x = 2``, which waits behind it, and return how both ended."""
    going, cancel = asyncio.Event(), asyncio.Event()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ask(prompt: str) -> str:
        going.set()
        return await answer

    first = asyncio.ensure_future(session.arun("x = 1; input('go')", on_input=ask))
    await going.wait()
    second = asyncio.ensure_future(session.arun("while True: x = 2", cancel=cancel))
    await asyncio.sleep(0)
    stop(second, cancel)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result("answered")
    return [await each for each in (first, asyncio.gather(second, return_exceptions=True))]


def test_a_cell_that_is_stopped_while_it_waits_does_not_interrupt_the_cell_before_it(
    session: Session, value: Value
) -> None:
    """The event belongs to one cell: it stops that one, when its turn comes, and no other; a cancelled one never runs."""
    first, (second,) = asyncio.run(behind(session, lambda _, cancel: cancel.set()))  # type: ignore[misc]
    assert (first.status, first.displays[-1].data["text/plain"]) == (Status.OK, "'answered'")
    assert second.status is Status.INTERRUPTED
    first, (second,) = asyncio.run(behind(session, lambda task, _: task.cancel()))  # type: ignore[misc]
    assert first.ok
    assert isinstance(second, asyncio.CancelledError)
    assert value(session, "x") == "1"


def test_a_listener_that_raises_ends_the_cell_and_its_error_comes_out(session: Session, value: Value) -> None:
    session.run("x = 1")

    def fail(stream: str, text: str) -> None:
        raise RuntimeError("listener")

    with pytest.raises(RuntimeError, match="listener"):
        session.run("x = 2; print('go\\n', end='')\nwhile True: pass", on_output=fail)
    assert value(session, "x") == "1"
