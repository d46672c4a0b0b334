"""Requests a scope from the user's service manager: control groups for an ordinary user in a login session.

The group of a login session belongs to root. The user's systemd, which may limit memory, makes a scope on request,
moves the requesting process into it, and lets it make groups there. The request goes over the user's bus with
``jeepney``, which is imported only here and only when needed.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque

from sandbox_kernel.jail.cgroups.cgroup_place import own_groups

#: A desktop answers within milliseconds. After this time the watchdog is used instead.
TIMEOUT_S = 2.0

_MANAGER = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"


class ScopeRefused(Exception):
    """No scope was made; the message says why."""


def may_ask(group: str, uid: int) -> bool:
    """Whether to request a scope: only for an ordinary user, in a version 2 group of a login session.

    A process elsewhere (a system service that runs as the user) would leave the limits that its administrator set. A
    scope stays below the same slice of the user as the session.
    """
    return uid != 0 and f"/user-{uid}.slice/" in f"{group}/"


def bus_address(uid: int) -> str:
    """Return the address of the user's bus."""
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
    if address:
        return address
    folder = os.environ.get("XDG_RUNTIME_DIR", "") or f"/run/user/{uid}"
    return f"unix:path={folder}/bus"


def enter_scope(timeout_s: float = TIMEOUT_S) -> None:
    """Move this process into a new delegated scope of the user's service manager. Raises ``ScopeRefused``."""
    answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    name = f"sandbox-kernel-{os.urandom(8).hex()}.scope"

    def ask() -> None:
        try:
            _start_scope(name)
            answer.put(None)
        except Exception as error:
            answer.put(error)

    # The library waits for the bus without a time limit, so it runs in a thread that can be left behind.
    threading.Thread(target=ask, name="sandbox-scope", daemon=True).start()
    try:
        refused = answer.get(timeout=timeout_s)
    except queue.Empty:
        raise ScopeRefused(f"no answer within {timeout_s:g} s") from None
    if refused is not None:
        reason = refused if isinstance(refused, ScopeRefused) else ScopeRefused(f"{type(refused).__name__}: {refused}")
        raise reason from None
    if name not in own_groups().get("", ""):
        raise ScopeRefused(f"it made the scope {name} but did not move this process into it")


def _start_scope(name: str) -> None:
    """Request the scope and wait until it exists."""
    try:
        from jeepney import DBusAddress, MatchRule, message_bus, new_method_call
        from jeepney.io.blocking import open_dbus_connection
        from jeepney.wrappers import unwrap_msg
    except ImportError:
        raise ScopeRefused("the package jeepney, which is needed to call it, is not installed") from None
    properties = [
        ("PIDs", ("au", [os.getpid()])),
        ("Delegate", ("b", True)),
        ("Description", ("s", "Sandboxes of a sandbox-kernel host process")),
        ("CollectMode", ("s", "inactive-or-failed")),
    ]
    manager = DBusAddress(_PATH, bus_name=_MANAGER, interface=f"{_MANAGER}.Manager")
    ended = MatchRule(type="signal", interface=f"{_MANAGER}.Manager", member="JobRemoved", path=_PATH)
    with open_dbus_connection(bus_address(os.geteuid())) as bus, bus.filter(ended, queue=deque()) as jobs:
        for call in (message_bus.AddMatch(ended), new_method_call(manager, "Subscribe")):
            unwrap_msg(bus.send_and_get_reply(call))
        start = new_method_call(manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", (name, "fail", properties, []))
        (job,) = unwrap_msg(bus.send_and_get_reply(start))
        while True:
            _, path, _, result = bus.recv_until_filtered(jobs).body
            if path == job:
                break
    if result != "done":
        raise ScopeRefused(f"the scope was not started: {result}")
