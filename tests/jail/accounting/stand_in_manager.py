"""A stand-in for the user's service manager on a private bus, for hosts on which no systemd runs.

``stand_in_manager.py MODE SLICE UID`` answers StartTransientUnit as systemd does: it makes the scope below SLICE, gives
it to the user and moves the process that asks. Other modes: ``refuse`` answers with an error, ``fail`` ends the job
badly, ``stay`` moves nobody, ``silent`` never answers.
"""

import os
import sys

from jeepney import HeaderFields, MessageType, message_bus, new_error, new_method_return, new_signal
from jeepney.io.blocking import open_dbus_connection
from jeepney.low_level import Message
from jeepney.wrappers import DBusAddress

NAME, PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
JOB = f"{PATH}/job/7"


def make_scope(folder: str, uid: int, pids: list[int]) -> None:
    """What the manager does in the file system."""
    os.mkdir(folder)
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(os.path.join(folder, name), uid, uid)
    for pid in pids:
        with open(f"{folder}/cgroup.procs", "w") as file:
            file.write(str(pid))


def answer(mode: str, where: str, uid: int, call: Message) -> list[Message]:
    """The messages that a call is answered with."""
    member = call.header.fields[HeaderFields.member]
    if member == "Subscribe":
        return [new_method_return(call)]
    if mode == "silent" or member != "StartTransientUnit":
        return []
    if mode == "refuse":
        return [new_error(call, "org.freedesktop.DBus.Error.AccessDenied", "s", ("not for you",))]
    name, how, properties, _ = call.body
    given = {key: value for key, (_, value) in properties}
    assert how == "fail" and given["Delegate"] is True, call.body
    if mode == "work":
        make_scope(f"{where}/{name}", uid, given["PIDs"])
    result = "failed" if mode == "fail" else "done"
    manager = DBusAddress(PATH, interface=f"{NAME}.Manager")
    signals = [
        new_signal(manager, "JobRemoved", "uoss", (number, path, name, result))
        for number, path in ((6, "/a"), (7, JOB))
    ]
    return [new_method_return(call, "o", (JOB,)), *signals]


def main() -> None:
    """Serve until killed."""
    mode, where, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open_dbus_connection(os.environ["DBUS_SESSION_BUS_ADDRESS"]) as bus:
        bus.send_and_get_reply(message_bus.RequestName(NAME))
        print("ready", flush=True)
        while True:
            call = bus.receive()
            if call.header.message_type is MessageType.method_call:
                for message in answer(mode, where, uid, call):
                    bus.send(message)


if __name__ == "__main__":
    main()
