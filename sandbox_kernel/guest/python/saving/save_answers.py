"""Answers the host's questions to save and to load the variables of a Python session.

Saving runs code of the variables (``__reduce__``), so it happens in a fork where that is possible: the session stays as
it is, whatever that code does. The file lies in the work folder, from where the host takes it and where the host puts
it.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import select
import time

from . import save_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

#: How long the forks may take together, and how many variables may end one.
SAVE_S, MAX_TRIES = 100.0, 5
_fork, _exit = os.fork, os._exit


def save(variables: Dict[str, Any], path: str, *, apart: bool = True) -> Dict[str, Any]:
    """Write the variables to a new file. Returns its size and the report, or why it could not be written.

    Without ``apart`` this process itself writes them: a fork cannot read the memory of an accelerator.
    """
    found = _save_apart(variables, path) if apart else _write(variables, path, save_state.SaveTrial(made_again=False))
    if "problem" in found:
        _remove(path)
    return found


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _write(variables: Dict[str, Any], path: str, trial: save_state.SaveTrial) -> Dict[str, Any]:
    try:
        with open(path, "xb") as file:
            report = save_state.save(variables, file, folder=os.path.dirname(path), trial=trial)
            # The file that the host keeps consists of whole pages.
            file.write(bytes(-file.tell() % (1 << 16)))
            return {"size": file.tell(), "elapsed_s": 0.0, "report": report}
    except BaseException as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}", "full": full}


def _write_all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]


def _save_apart(variables: Dict[str, Any], path: str) -> Dict[str, Any]:
    """Save in a fork. When a variable ends the fork, it is named as lost and the others are saved without it."""
    lost: Dict[str, str] = {}
    deadline = time.monotonic() + SAVE_S
    while True:
        place = mmap.mmap(-1, mmap.PAGESIZE)  # where the fork says at which variable it is
        try:
            found = _try_apart(variables, path, save_state.SaveTrial(lost=lost, place=place), deadline)
        except OSError as error:  # a session that may start no processes has leave for one fork
            found = {"problem": f"the variables {', '.join(lost)} ended it, and then {error}" if lost else str(error)}
        name = save_state.SaveTrial(place=place).at(variables)
        if found is not None or not name or len(lost) >= MAX_TRIES or time.monotonic() > deadline:
            return found or {"problem": "the process that saved was ended, for its memory or its time", "full": False}
        _remove(path)
        lost[name] = (
            f"{type(variables[name]).__name__}: the process that stored it ended, for its memory or by its code"
        )


def _try_apart(
    variables: Dict[str, Any], path: str, trial: save_state.SaveTrial, deadline: float
) -> Dict[str, Any] | None:
    """Return the answer of a fork; None when it ended without one, or took too long."""
    reader, writer = os.pipe()
    pid = _fork()
    if pid == 0:
        answer: Dict[str, Any] = {"problem": "it ended without a word"}
        try:
            os.close(reader)
            nowhere = os.open("/dev/null", os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nowhere, stream)
            save_state.watch_time()
            answer = _write(variables, path, trial)
        except BaseException as error:
            answer = {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
        finally:
            _write_all(writer, json.dumps(answer).encode() + b"\n")
            _exit(0)
    os.close(writer)
    data, ended = b"", False
    try:
        # A child of the fork may hold the pipe open, so its end is no sign that the fork has ended.
        while not data.endswith(b"\n") and time.monotonic() < deadline:
            if not select.select([reader], [], [], 0.2)[0]:
                if ended:
                    break
                ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            elif not (part := os.read(reader, 1 << 16)):
                break
            else:
                data += part
    finally:
        os.close(reader)
        if not ended:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    try:
        found: Dict[str, Any] = json.loads(data)
    except ValueError:
        return None
    return found


def load(space: Dict[str, Any], order: str, before: Dict[str, Any]) -> Dict[str, Any]:
    """Read variables from a file into the session, remove the file, and run the cells of what it lacks.

    ``order`` is JSON: ``path``, and ``cells``, the code that makes each variable that could not be stored. Variables
    that the session has (``before``) and the saved one had not are removed. Returns the report, or the problem.
    """
    asked = json.loads(order)
    try:
        with open(asked["path"], "rb") as file:
            report = save_state.load(file, space)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        os.unlink(asked["path"])
    for name in before:
        if name not in report["stored"] and name not in report["lost"]:
            space.pop(name, None)
    remade = []
    for name, code in asked["cells"].items():
        apart = dict(space)  # only the variable itself is taken over
        try:
            exec(compile(code, "<cell of a saved session>", "exec"), apart)
            space[name] = apart[name]
            remade.append(name)
        except Exception as error:
            report["lost"][name] = f"its cell was run again and failed: {type(error).__name__}: {str(error)[:100]}"
    report["recomputed"] = remade
    report["lost"] = {name: why for name, why in report["lost"].items() if name not in remade}
    return {"report": report}
