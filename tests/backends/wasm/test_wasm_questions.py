"""A program in WebAssembly that reads its standard input can ask whoever runs it."""

import asyncio
import os
import threading
from unittest.mock import Mock

import pytest

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from tests.backends.conftest import User

#: Asks "name? ", then copies what it reads, three bytes at a time, up to the end of a line or of the input.
ECHO_LINE = """(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 16) "name? ")
  (func $say (param $at i32) (param $size i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $size))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $line (local $got i32)
    (call $say (i32.const 16) (i32.const 6))
    (loop $more
      (i32.store (i32.const 0) (i32.const 100)) (i32.store (i32.const 4) (i32.const 3))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $got (i32.load (i32.const 8)))
      (if (i32.eqz (local.get $got)) (then (return)))
      (call $say (i32.const 100) (local.get $got))
      (br_if $more (i32.ne (i32.load8_u (i32.add (i32.const 99) (local.get $got))) (i32.const 10)))))
  (func (export "_start") (call $line) (call $line)))"""


def echo(backend: WasmBackend, user: User, **fields: object) -> ExecResult:
    request = ExecRequest(language=Language.WASM, code=ECHO_LINE, **{"timeout": 20, **fields})  # type: ignore[arg-type]
    return backend.run(request, RunContext(on_output=user.hear, on_input=user.ask))


def test_a_line_is_asked_for_once_however_small_its_pieces_are_and_what_was_printed_is_shown_before(
    wasm_backend,
) -> None:
    user = User("Ada é", "Grace")
    result = echo(wasm_backend, user)
    assert (result.status, result.stdout) == (Status.OK, "name? Ada é\nname? Grace\n")
    assert user.seen == [("", "name? "), ("", "name? Ada é\nname? ")]
    user = User("one")  # then nobody is there, the input ends, and nobody is asked again
    assert echo(wasm_backend, user).stdout == "name? one\nname? "
    assert len(user.seen) == 2


def test_nobody_is_asked_where_the_input_is_given_or_nobody_is_there(wasm_backend) -> None:
    user, request = User("never"), ExecRequest(language=Language.WASM, code=ECHO_LINE, timeout=20)
    assert echo(wasm_backend, user, stdin="ab\ncd\n").stdout == "name? ab\nname? cd\n"
    with open(os.devnull, "rb") as empty:
        result = wasm_backend.run(request, RunContext(on_input=user.ask, stdin_from=empty.fileno()))
    assert (result.stdout, user.seen) == ("name? name? ", [])
    assert wasm_backend.run(request).stdout == "name? name? "
    with pytest.raises(InvalidRequest, match="on_input"):
        wasm_backend.run(request, RunContext(on_input="me"))


@pytest.mark.slow
def test_the_time_that_a_user_takes_is_not_the_program_s(wasm_backend) -> None:
    echo(wasm_backend, User("compiled", "now"))
    slow = User("late", "later")
    answer = slow.ask

    def think(prompt: str, password: bool) -> str:
        threading.Event().wait(2.5)
        return answer(prompt, password)

    slow.ask = think  # type: ignore[method-assign]
    assert echo(wasm_backend, slow, timeout=4.0).status is Status.OK


def test_an_interrupt_at_a_question_ends_the_program_and_a_fault_of_the_one_who_is_asked_is_his_own(
    wasm_backend,
) -> None:
    user = User()
    user.ask = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    result = echo(wasm_backend, user)
    assert (result.status, result.stdout) == (Status.INTERRUPTED, "name? ")
    user.ask = Mock(side_effect=ZeroDivisionError("mine"))  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError, match="mine"):
        echo(wasm_backend, user)


def test_a_program_can_be_stopped_while_its_user_thinks(wasm_backend) -> None:
    asked, request = asyncio.Event, ExecRequest(language=Language.WASM, code=ECHO_LINE, timeout=20)

    async def go() -> ExecResult:
        cancel, never = asked(), asked()

        async def ask(prompt: str, password: bool) -> str:
            cancel.set()
            await never.wait()
            return ""

        task = asyncio.ensure_future(wasm_backend.execute(request, cancel=cancel, on_input=ask))
        result = await task
        never.set()
        return result

    assert asyncio.run(go()).status is Status.INTERRUPTED


@pytest.mark.slow
def test_a_long_answer_is_cut_and_read_to_its_end(wasm_backend) -> None:
    result = echo(wasm_backend, User("x" * 200_000, "end"))
    first, _, rest = result.stdout.removeprefix("name? ").partition("\n")
    assert (set(first), len(first), rest) == ({"x"}, 32 << 10, "name? end\n")


@pytest.mark.slow
def test_javascript_asks_with_its_prompt(wasm_backend) -> None:
    user = User("Zed")
    code = "console.log('hi', prompt('who? '))"
    request = ExecRequest(language=Language.JAVASCRIPT, code=code, timeout=20)
    result = wasm_backend.run(request, RunContext(on_output=user.hear, on_input=user.ask))
    assert (result.stdout, [prompt.strip() for prompt, _ in user.seen]) == ("hi Zed\n", ["who?"])


def test_a_program_in_webassembly_can_be_talked_to_while_it_runs(wasm_backend) -> None:
    read, write = os.pipe()
    lines = [b"Ada\n", b"Grace\n"]

    def hear(_stream: str, text: str) -> None:
        # Nothing is there to read before the program has asked for it.
        if "name? " in text:
            os.write(write, lines.pop(0))

    request = ExecRequest(language=Language.WASM, code=ECHO_LINE, timeout=20)
    try:
        result = wasm_backend.run(request, RunContext(on_output=hear, stdin_from=read))
    finally:
        os.close(read)
        os.close(write)
    assert (result.stdout, lines) == ("name? Ada\nname? Grace\n", [])
