"""Answers the host's questions to save and to load the variables of a Python session.

Saving runs code of the variables (``__reduce__``), so it happens in a fork where that is possible: the session stays as
it is, whatever that code does. The file lies in the work folder, from where the host takes it and where the host puts
it.
"""

from __future__ import annotations

import json
import os
import select

from . import save_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

#: How long the fork may take.
SAVE_S = 110.0
_fork, _exit = os.fork, os._exit


def save(variables: Dict[str, Any], path: str, *, apart: bool = True) -> Dict[str, Any]:
    """Write the variables to a new file. Returns its size and the report, or why it could not be written.

    Without ``apart`` this process itself writes them: a fork cannot read the memory of an accelerator.
    """
    found = _save_apart(variables, path) if apart else _write(variables, path, made_again=False)
    if "problem" in found:
        try:
            os.unlink(path)
        except OSError:
            pass
    return found


def _write(variables: Dict[str, Any], path: str, *, made_again: bool) -> Dict[str, Any]:
    try:
        with open(path, "xb") as file:
            report = save_state.save(variables, file, made_again=made_again)
            # The file that the host keeps consists of whole pages.
            file.write(bytes(-file.tell() % (1 << 16)))
            return {"size": file.tell(), "elapsed_s": 0.0, "report": report}
    except BaseException as error:
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}"}


def _save_apart(variables: Dict[str, Any], path: str) -> Dict[str, Any]:
    reader, writer = os.pipe()
    pid = _fork()
    if pid == 0:
        answer: Dict[str, Any] = {"problem": "it ended without a word"}
        try:
            os.close(reader)
            nowhere = os.open("/dev/null", os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nowhere, stream)
            answer = _write(variables, path, made_again=True)
        except BaseException as error:
            answer = {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
        finally:
            os.write(writer, json.dumps(answer).encode()[: 1 << 20])
            _exit(0)
    os.close(writer)
    data = b""
    try:
        while select.select([reader], [], [], SAVE_S)[0] and (part := os.read(reader, 1 << 16)):
            data += part
    finally:
        os.close(reader)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    try:
        found: Dict[str, Any] = json.loads(data)
    except ValueError:
        return {"problem": "the process that saved was ended, for its memory or its time"}
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
