"""Questions of a sandboxed program reach the user marked, bounded and stoppable."""

import asyncio
import threading

import pytest

from sandbox_kernel.notebook.page import kernel_door
from sandbox_kernel.notebook.page.kernel_door import MAX_QUESTIONS, NotebookPrompts, StdinChannel


class Desk:
    """A client that answers from a list."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.prompts = []

    def ask(self, prompt, password):
        self.prompts.append((prompt, password))

    def poll(self):
        return {"value": self.answers.pop(0)} if self.answers else None


def ask(desk, *prompts, allowed=True, cancel=None):
    async def all_of_them():
        questions = NotebookPrompts(desk, threading.Lock(), cancel or asyncio.Event(), allowed)
        return [await questions.ask(prompt) for prompt in prompts]

    return asyncio.run(all_of_them())


@pytest.mark.attack("O06", "kernel")
def test_the_prompt_is_marked_as_the_sandboxs_and_made_harmless():
    desk = Desk("x")
    ask(desk, "\x1b]0;t\x07Jupyter\npassword\x1b[31m: " + "y" * 9000)
    ((prompt, password),) = desk.prompts
    assert prompt.startswith("sandbox asks: Jupyter password: yyy")
    assert len(prompt) < 1100
    assert password is False


class Socket:
    """Holds the replies of clients."""

    def __init__(self, replies):
        self.replies, self.old = replies, [b"an answer to an earlier prompt"]

    def poll(self, timeout, flags):
        return bool(self.old)

    def recv_multipart(self, flags):
        return self.old.pop()


class FakeChannels:
    """A stdin channel on which these replies come; prompts get the id ``ours``."""

    def __init__(self, *replies):
        self.stdin = Socket(list(replies))

    def send(self, socket, kind, content, parent, ident):
        assert (socket, kind) == (self.stdin, "input_request")
        return "ours"

    def recv(self, socket, flags):
        return None, socket.replies.pop(0) if socket.replies else None


def reply(value, to=None, kind="input_reply"):
    parent = {} if to is None else {"msg_id": to}
    return {"msg_type": kind, "parent_header": parent, "content": {"value": value}}


@pytest.mark.parametrize(
    "others", [[reply("old", "another")], [reply("x", "ours", "execute_request")], [{**reply("y"), "content": 1}]]
)
def test_only_the_answer_to_the_prompt_is_taken(others):
    channels = FakeChannels(*others, reply("mine", "ours"))
    assert ask(StdinChannel(channels, {}, b"client"), "name? ") == ["mine"]
    assert channels.stdin.old == []


def test_an_answer_that_names_no_prompt_is_that_of_a_console():
    assert ask(StdinChannel(FakeChannels(reply("mine")), {}, b"client"), "name? ") == ["mine"]


def test_a_client_that_cannot_be_asked_is_said_at_once():
    with pytest.raises(EOFError, match="give the text with %%sandbox --stdin"):
        ask(Desk("x"), "name?", allowed=False)


@pytest.mark.attack("O06", "kernel")
def test_ten_thousand_questions_are_not_passed_on():
    desk = Desk(*["x"] * (MAX_QUESTIONS + 5))
    with pytest.raises(EOFError, match="further prompts are refused"):
        ask(desk, *["?"] * (MAX_QUESTIONS + 1))
    assert len(desk.prompts) == MAX_QUESTIONS


def test_end_of_file_and_nonsense_are_the_end_of_input():
    for answer in ("\x04", None, 3):
        with pytest.raises(EOFError):
            ask(Desk(answer), "?")


def test_an_interrupt_ends_the_waiting(monkeypatch):
    monkeypatch.setattr(kernel_door, "_POLL_S", 60)
    monkeypatch.setattr(kernel_door, "_INTERRUPT_S", 0)

    async def interrupted():
        cancel = asyncio.Event()
        task = asyncio.ensure_future(NotebookPrompts(Desk(), threading.Lock(), cancel, True).ask("?"))
        await asyncio.sleep(0)
        cancel.set()
        await asyncio.wait_for(task, 30)

    with pytest.raises(EOFError, match="interrupted while waiting"):
        asyncio.run(interrupted())


def test_two_cells_share_one_socket_one_question_at_a_time():
    async def two():
        lock, desk = threading.Lock(), Desk("a", "b")
        cells = [NotebookPrompts(desk, lock, asyncio.Event(), True).ask(name) for name in ("1", "2")]
        return await asyncio.gather(*cells)

    assert sorted(asyncio.run(two())) == ["a", "b"]


def own_question(desk, allowed=True):
    async def ask_it():
        return await NotebookPrompts(desk, threading.Lock(), asyncio.Event(), allowed).question("▣ allow? ")

    return asyncio.run(ask_it())


def test_a_question_of_ours_is_not_marked_as_the_programs():
    desk = Desk("o")
    assert own_question(desk) == "o"
    assert desk.prompts == [("▣ allow? ", False)]


def test_a_question_of_ours_that_nobody_answers_does_not_hold_the_cell(monkeypatch):
    monkeypatch.setattr(kernel_door, "QUESTION_S", 0.05)
    assert own_question(Desk()) is None
    assert own_question(Desk("x"), allowed=False) is None
