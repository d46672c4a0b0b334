"""A client of one running kernel: sends requests, and matches replies and iopub messages to them."""

from __future__ import annotations

import os
import queue
import subprocess
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from benchmarks.kernel_peers import Kernel

Json = Mapping[str, Any]

PATIENCE_S = 15.0
_START_S = 60.0
_LOOK_S = 0.5


class NoAnswer(Exception):
    """An expected message did not come; ``died`` if the kernel has ended."""

    def __init__(self, what: str, *, died: bool) -> None:
        super().__init__(f"the kernel died before {what}" if died else f"no {what} in time")
        self.died = died


@dataclass(frozen=True)
class Message:
    """A message of the iopub channel and its time of arrival."""

    kind: str
    content: Json
    at: float


@dataclass(frozen=True)
class Run:
    """One executed cell: the reply, the published messages, and the time until all had arrived."""

    request: str
    reply: Json
    messages: tuple[Message, ...]
    seconds: float

    def of_kind(self, *kinds: str) -> list[Message]:
        """Return the published messages of these types."""
        return [message for message in self.messages if message.kind in kinds]

    def text(self, stream: str = "stdout") -> str:
        """Return all text of one stream."""
        return "".join(m.content["text"] for m in self.of_kind("stream") if m.content["name"] == stream)


class RunningKernel:
    """A started kernel with a connected client. ``close`` ends it."""

    def __init__(self, kernel: Kernel, env: Mapping[str, str] | None = None, *, settle: bool = True) -> None:
        """``settle=False`` returns as soon as the kernel answers, for timing; published messages may still be lost."""
        self.kernel = kernel
        specs = KernelSpecManager(kernel_dirs=[str(kernel.spec_folder.parent)], ensure_native_kernel=False)
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-")
        self._manager = KernelManager(
            kernel_name=kernel.name,
            kernel_spec_manager=specs,
            connection_file=os.path.join(self._folder.name, "connection.json"),
        )
        self._manager.start_kernel(
            env={**os.environ, **kernel.env, **(env or {})},
            cwd=self._folder.name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._client: BlockingKernelClient = self._manager.client()
        self._client.start_channels()
        self._early: dict[tuple[str, str], deque[Json]] = defaultdict(deque)
        self.first_iopub = ""
        self.ask("kernel_info_request", patience=_START_S)
        if settle:
            self._settle()

    def _settle(self) -> None:
        """Wait until the kernel is ready and its published messages arrive."""
        try:  # protocol 5.5 sends a welcome message first on this channel
            self.first_iopub = str(self._client.get_iopub_msg(timeout=1)["msg_type"])
        except queue.Empty:
            pass
        self._client.wait_for_ready(timeout=_START_S)

    @property
    def pid(self) -> int:
        """The process that was started for the kernel."""
        pid = getattr(self._manager.provisioner, "pid", None)
        if not isinstance(pid, int):
            raise NoAnswer("process", died=True)
        return pid

    @property
    def alive(self) -> bool:
        """Whether the kernel's process still runs."""
        return bool(self._manager.is_alive())

    def pss_bytes(self) -> int:
        """Memory of the kernel and all its children, shared pages counted once."""
        top = psutil.Process(self.pid)
        total = 0
        for process in (top, *top.children(recursive=True)):
            try:
                total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total

    def send(self, kind: str, content: Json, *, channel: str = "shell", subshell: str | None = None) -> str:
        """Send a request and return its id."""
        message = self._client.session.msg(kind, dict(content))
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        getattr(self._client, f"{channel}_channel").send(message)
        return str(message["header"]["msg_id"])

    def execute(self, code: str, **options: object) -> str:
        """Ask for a cell to be run and return the id of the request."""
        return str(self._client.execute(code, **options))

    def reply(self, request: str, *, channel: str = "shell", patience: float = PATIENCE_S) -> Json:
        """The content of the reply to a request."""
        return self._answer_to(request, channel, "reply", patience)["content"]  # type: ignore[no-any-return]

    def ask(self, kind: str, content: Json | None = None, *, channel: str = "shell", patience: float = 5.0) -> Json:
        """Send a request and wait for its reply."""
        return self.reply(self.send(kind, content or {}, channel=channel), channel=channel, patience=patience)

    def next_message(self, request: str, patience: float = PATIENCE_S) -> Message:
        """The next published message that belongs to a request."""
        message = self._answer_to(request, "iopub", "message", patience)
        return Message(message["msg_type"], message["content"], time.perf_counter())

    def until_idle(self, request: str, patience: float = PATIENCE_S) -> tuple[Message, ...]:
        """Return everything published for a request, up to its idle message."""
        messages: list[Message] = []
        while True:
            message = self.next_message(request, patience)
            if message.kind == "status" and message.content["execution_state"] == "idle":
                return tuple(messages)
            messages.append(message)

    def late_messages(self, request: str) -> list[str]:
        """Return the types of messages that were published for a request after its idle message."""
        return [message["msg_type"] for message in self._early.pop(("iopub", request), ())]

    def text_until(self, request: str, text: str, patience: float = PATIENCE_S) -> str:
        """Return the output of a cell up to this text. Some kernels send the idle message before the last output."""
        seen = ""
        while text not in seen:
            message = self.next_message(request, patience)
            seen += message.content["text"] if message.kind == "stream" else ""
        return seen

    def output_of(self, request: str, wanted: int, *, patience: float) -> str:
        """Return the output of a cell, up to ``wanted`` characters or until no more comes."""
        parts: list[str] = []
        try:
            while wanted > 0:
                message = self.next_message(request, patience)
                if message.kind == "stream":
                    parts.append(message.content["text"])
                    wanted -= len(parts[-1])
        except NoAnswer:
            pass
        return "".join(parts)

    def run(self, code: str, *, patience: float = PATIENCE_S, expected: str = "", **options: object) -> Run:
        """Run a cell to its end, and wait for its expected text."""
        started = time.perf_counter()
        request = self.execute(code, **options)
        messages = list(self.until_idle(request, patience))
        while expected not in "".join(m.content["text"] for m in messages if m.kind == "stream"):
            messages.append(self.next_message(request, patience))
        reply = self.reply(request, patience=patience)
        return Run(request, reply, tuple(messages), time.perf_counter() - started)

    def prompt(self, request: str, patience: float) -> str:
        """Return the prompt of a cell that asks for input."""
        return str(self._answer_to(request, "stdin", "input_request", patience)["content"]["prompt"])

    def answer(self, text: str) -> None:
        """Send the input that a cell asked for."""
        self._client.input(text)

    def interrupt(self) -> None:
        """Interrupt as a notebook server does: by signal or message, as the kernelspec says."""
        self._manager.interrupt_kernel()

    def kill(self) -> None:
        """Send SIGKILL to the kernel's process group, as a server does with a kernel that does not end."""
        self._manager.shutdown_kernel(now=True)

    def close(self) -> None:
        """End the kernel, whatever state it is in."""
        self._client.stop_channels()
        if self.alive:
            self.kill()
        self._manager.cleanup_resources()
        self._folder.cleanup()

    def _answer_to(self, request: str, channel: str, what: str, patience: float) -> Json:
        """Return the next message on a channel that belongs to ``request``; keep messages of other requests."""
        early = self._early[channel, request]
        if early:
            return early.popleft()
        receive = getattr(self._client, f"get_{channel}_msg")
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            try:
                message: Json = receive(timeout=min(left, _LOOK_S))
            except queue.Empty:
                if not self.alive:
                    raise NoAnswer(what, died=True) from None
                continue
            parent = message["parent_header"].get("msg_id")
            if parent == request:
                return message
            self._early[channel, str(parent)].append(message)
        raise NoAnswer(what, died=False)
