"""Answers the host's questions to save and to load the variables of a Python session.

Saving runs code of the variables (``__reduce__``), so it happens in a fork where that is possible: the session stays as
it is, whatever that code does. What is saved goes to the host through a pipe, when all of it is ready; what is loaded
comes in a memory file that the host has sealed. Neither takes room in the work folder.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import sys
import time

from . import save_state, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

#: How long the fork may take.
SAVE_S = 100.0
#: How deep objects may lie in each other in a fork that saves.
DEEP = 20_000
#: References taken before the first cell, because a cell may replace these functions.
_fork, _exit, _dumps, _loads = os.fork, os._exit, json.dumps, json.loads


#: Names, without their underscores, that IPython gives to what was typed and shown.
_OF_IPYTHON = ("i", "ii", "iii", "ih", "oh", "dh", "exit_code")
#: Names that every module has, or IPython's.
_OF_MODULES = (
    "__name__",
    "__doc__",
    "__package__",
    "__loader__",
    "__spec__",
    "__builtin__",
    "__builtins__",
    "__file__",
    "__cached__",
    "__session__",
    "__warningregistry__",
)


def private_variables(space: Dict[str, Any], hidden: Dict[str, Any]) -> Dict[str, Any]:
    """Return the variables whose names begin with ``_``, which functions of cells may use; not those of IPython."""
    nothing = object()
    found = {}
    for name, value in space.items():
        bare = name.lstrip("_") if type(name) is str else ""
        if not bare or name[0] != "_" or name in _OF_MODULES or value is hidden.get(name, nothing):
            continue
        numbered = bare.isdigit() or (bare[0] == "i" and bare[1:].isdigit())
        if not numbered and bare not in _OF_IPYTHON:
            found[name] = value
    return found


def save(
    variables: Dict[str, Any],
    into: int,
    order: str,
    interrupted: Callable[[], bool],
    *,
    cells: List[str],
    apart: bool = True,
) -> Dict[str, Any]:
    """Write the variables to a descriptor, which is closed afterwards, and with them the settings of the process.

    Without ``apart`` this process itself writes them: a fork cannot read the memory of an accelerator.

    Args:
        variables: the variables.
        into: the descriptor.
        order: JSON: ``folder``, the work folder; ``lost``: variables that are not tried, each with the reason; and
            ``rights``: variables of the environment that are rights of this session, which are not saved.
        interrupted: whether the host has asked to give up.
        cells: the texts of the cells.
        apart: whether a fork writes them.

    Returns:
        How much was written, and the report; or ``problem``, why nothing was; or ``ended``: the variable that ended the
        fork, with the reason, before anything was written. The others can be saved without it.

    """
    asked = _loads(order)
    settings.Rights.names = tuple(asked["rights"])
    settings.note_before_fork()

    def write(trial: save_state.SaveTrial) -> Dict[str, Any]:
        return _write(variables, into, asked["folder"], trial, cells)

    try:
        if apart:
            return _save_apart(variables, asked, interrupted, write)
        return write(save_state.SaveTrial(made_again=False, lost=asked["lost"]))
    finally:
        os.close(into)


def _write(
    variables: Dict[str, Any], into: int, folder: str, trial: save_state.SaveTrial, cells: List[str]
) -> Dict[str, Any]:
    try:
        with open(into, "wb", closefd=False) as file:
            size, report = save_state.save(variables, file, folder=folder, trial=trial, cells=cells)
        return {"size": size, "elapsed_s": 0.0, "report": report}
    except BaseException as error:
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}", "full": False}


def _write_all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]


def _save_apart(
    variables: Dict[str, Any],
    asked: Dict[str, Any],
    interrupted: Callable[[], bool],
    write: Callable[[save_state.SaveTrial], Dict[str, Any]],
) -> Dict[str, Any]:
    """Save in a fork. When a variable ends the fork, it is named."""
    # The fork says there at which variable it is.
    trial = save_state.SaveTrial(lost=asked["lost"], place=mmap.mmap(-1, mmap.PAGESIZE))
    try:
        found = _try_apart(lambda: write(trial), interrupted)
    except OSError as error:
        found = {"problem": str(error), "full": False}
    if found is not None:
        return found
    name = trial.at()
    if not name:
        return {"problem": "the process that saved was ended, for its memory or its time", "full": False}
    kind = f"{type(variables[name]).__name__}: " if name in variables else ""
    return {"ended": {name: f"{kind}the process that stored it ended, for its memory or by its code"}}


def _try_apart(write: Callable[[], Dict[str, Any]], interrupted: Callable[[], bool]) -> Dict[str, Any] | None:
    """Return the answer of a fork; None when it ended without one, or took too long."""
    deadline = time.monotonic() + SAVE_S
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
            # A long chain of objects is pickled deep down. If the stack does not last, this process alone ends.
            sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEP))
            answer = write()
        except BaseException as error:
            answer = {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
        finally:
            _write_all(writer, _dumps(answer).encode() + b"\n")
            _exit(0)
    os.close(writer)
    data, ended = b"", False
    try:
        # A child of the fork may hold the pipe open, so its end is no sign that the fork has ended.
        while not data.endswith(b"\n") and time.monotonic() < deadline:
            if not select.select([reader], [], [], 0.2)[0]:
                if interrupted():
                    return {"interrupted": True}
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
        found: Dict[str, Any] = _loads(data)
    except ValueError:
        return None
    return found


def load(space: Dict[str, Any], source: int, order: str, before: Dict[str, Any]) -> Dict[str, Any]:
    """Read variables from a descriptor into the session, close it, and run the cells of what the file lacks.

    ``order`` is JSON: the code that makes each variable that could not be stored. Variables that the session has
    (``before``) and the saved one had not are removed. Returns the report, or the problem.
    """
    try:
        with open(source, "rb") as file:
            file.seek(0)
            report, set_again = save_state.load(file, space)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
    for name in before:
        if name not in report["stored"] and name not in report["lost"]:
            space.pop(name, None)
    remade: List[str] = []
    cells: Dict[str, List[str]] = {}
    for name, code in _loads(order).items():
        cells.setdefault(code, []).append(name)
    for code, names in cells.items():
        remade += _run_again(space, code, names, report["lost"])
    if cells:
        # The cells may have changed settings, and have taken random numbers.
        set_again()
    report["recomputed"] = [name for name in remade if name in report["lost"]]
    report["lost"] = {name: why for name, why in report["lost"].items() if name not in remade}
    return {"report": report}


def _run_again(space: Dict[str, Any], code: str, names: List[str], lost: Dict[str, str]) -> List[str]:
    """Run a cell again and take over the variables ``names``; all others are what they were. Returns what it made.

    It runs once for all of them, because they may refer to each other, and with the session's variables as globals,
    because functions and generators of the cell keep them.
    """
    before = dict(space)
    made: Dict[str, Any] = {}
    why = "its cell was run again and did not make it"
    try:
        exec(compile(code, "<cell of a saved session>", "exec"), space)
        made = {name: space[name] for name in names if name in space}
    except Exception as error:
        why = f"its cell was run again and failed: {type(error).__name__}: {str(error)[:100]}"
    for name in [name for name in space if name not in before]:
        del space[name]
    space.update(before)
    space.update(made)
    lost.update({name: why for name in names if name in lost and name not in made})
    return list(made)
