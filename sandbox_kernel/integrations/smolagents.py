"""smolagents: a sandbox as ``PythonExecutor``. Tools stay in this process, as host functions. Extra ``smolagents``."""

from __future__ import annotations

import ast
import io
from collections.abc import Callable, Mapping
from typing import Any

from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.limits import FunctionLimits
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.model.result import describe_end
from sandbox_kernel.policy import SandboxPolicy

_FINAL = "final_answer"
#: How an image crosses the wall: an object with its PNG file.
_IMAGE = "__png__"
#: Longer literals stay text: to parse one takes several hundred times its length.
_MOST_LITERAL = 20_000

_PRELUDE = f"""
def _sandbox_kernel_prelude():
    import host, io
    class FinalAnswer(BaseException): pass
    def pack(value):
        if hasattr(value, "save") and type(value).__module__.startswith("PIL."):
            data = io.BytesIO()
            value.save(data, "PNG")
            return {{{_IMAGE!r}: data.getvalue()}}
        if isinstance(value, (list, tuple, set)): return [pack(item) for item in value]
        if isinstance(value, dict): return {{str(key): pack(item) for key, item in value.items()}}
        if value is None or isinstance(value, (bool, int, float, str, bytes)) or hasattr(value, "tolist"): return value
        return str(value)
    def unpack(value):
        if isinstance(value, dict) and list(value) == [{_IMAGE!r}]:
            import PIL.Image
            return PIL.Image.open(io.BytesIO(value[{_IMAGE!r}]))
        if isinstance(value, list): return [unpack(item) for item in value]
        return {{key: unpack(item) for key, item in value.items()}} if isinstance(value, dict) else value
    def tool(name):
        def call(*args, **kwargs):
            result = unpack(host.call_tool(name, pack(args), pack(kwargs)))
            if name == {_FINAL!r}: raise FinalAnswer
            return result
        call.__name__ = name
        return call
    space = globals()
    for name in host.tool_names(): space[name] = tool(name)
    for name, value in host.variables().items(): space[name] = unpack(value)
_sandbox_kernel_prelude()
"""


class SandboxKernelExecutor(PythonExecutor):  # type: ignore[misc]
    """Runs the code of a ``CodeAgent`` in one Python session, until ``cleanup``. ``timeout`` is for one action."""

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        memory_mb: int = 1024,
        timeout: float = 60.0,
        function_limits: FunctionLimits | None = None,
    ) -> None:
        self._tools: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._final: list[Any] = []
        self._timeout = timeout
        #: What smolagents shows of an action that failed.
        self.state: dict[str, Any] = {}
        limits = function_limits or FunctionLimits(calls=1000, seconds=600)
        functions: dict[str, Callable[..., object]] = {
            "call_tool": self._call_tool,
            "tool_names": lambda: list(self._tools),
            "variables": lambda: {name: _pack(value) for name, value in self._variables.items()},
        }
        self._box = Sandbox(policy, functions=functions, function_limits=limits)
        self._session = self._box.session("python", memory_mb=memory_mb)

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """See ``PythonExecutor``. Called again, it adds tools."""
        self._tools.update(tools)
        self._prepare()

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """See ``PythonExecutor``. JSON values, bytes and images can be sent."""
        self._variables = dict(variables)
        self._prepare()

    def __call__(self, code_action: str) -> CodeOutput:
        """Run one action. Raises ``InterpreterError`` for code that failed or was stopped."""
        self._final.clear()
        result = self._session.run(code_action, self._timeout)
        self.state["_print_outputs"] = result.stdout
        if self._final and result.error is not None and result.error.ename == "FinalAnswer":
            return CodeOutput(output=self._final[-1], logs=result.stdout, is_final_answer=True)
        self._raise_failure(result)
        return CodeOutput(output=_value(result), logs=result.stdout, is_final_answer=False)

    def cleanup(self) -> None:
        """End the sandbox. Called by ``CodeAgent.cleanup``; may be called twice."""
        self._box.destroy()

    def _prepare(self) -> None:
        self._raise_failure(self._session.run(_PRELUDE, self._timeout))
        self._variables = {}

    def _call_tool(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> object:
        """Call a tool for the code inside. smolagents checks the arguments against the tool's own inputs."""
        if name not in self._tools:
            raise NameError(f"there is no tool {name!r}")
        result = self._tools[name](*(_unpack(arg) for arg in args), **{key: _unpack(kwargs[key]) for key in kwargs})
        if name == _FINAL:
            self._final.append(result)
            return None
        return _pack(result)

    @staticmethod
    def _raise_failure(result: ExecResult) -> None:
        if result.ok:
            return
        if result.status is Status.FAILED and result.error is not None:
            raise InterpreterError(f"{result.error.ename}: {result.error.evalue}")
        raise InterpreterError("; ".join([describe_end(result), *result.notes]))


def _pack(value: object) -> object:
    """Return a value of the host for the code inside: JSON, bytes and images as they are, the rest as text."""
    if type(value).__module__.startswith("PIL.") and hasattr(value, "save"):
        data = io.BytesIO()
        value.save(data, "PNG")
        return {_IMAGE: data.getvalue()}
    if isinstance(value, list | tuple | set):
        return [_pack(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _pack(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str | bytes) else str(value)


def _unpack(value: object) -> object:
    """Return a value from inside. An image is opened by Pillow, which checks what it reads; it is not loaded here."""
    if isinstance(value, dict) and list(value) == [_IMAGE] and isinstance(value[_IMAGE], bytes):
        import PIL.Image

        return PIL.Image.open(io.BytesIO(value[_IMAGE]), formats=["PNG"])
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    return {key: _unpack(item) for key, item in value.items()} if isinstance(value, dict) else value


def _value(result: ExecResult) -> object:
    """Return the value of the last expression: a literal as what it is, anything else as its text."""
    shown = [display.data.get("text/plain") for display in result.displays if display.kind == "result"]
    if not shown or not isinstance(shown[-1], str):
        return None
    if len(shown[-1]) > _MOST_LITERAL:
        return shown[-1]
    try:
        return ast.literal_eval(shown[-1])
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return shown[-1]
