"""Jupyter's own kernel test suite against wrapped kernels of other projects: ipykernel, bash_kernel, Deno, xeus-python, R."""

# ruff: noqa: RUF012 - the suite reads its samples from class attributes

import importlib.util
import platform
import shutil
import subprocess
import sys

import jupyter_kernel_test
import pytest
from jupyter_kernel_test.msgspec_v5 import validate_message

from tests.conftest import need


@pytest.fixture(scope="module", autouse=True)
def wrapped_kernels(spec, wrap):
    spec("bash", [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"], language="bash")
    spec("deno", ["deno", "jupyter", "--kernel", "--conn", "{connection_file}"], language="typescript")
    spec("xpython", [sys.executable, "-m", "xpython_launcher", "-f", "{connection_file}"], language="python")
    for name in ("python3", "bash", "deno", "xpython"):
        wrap(name)
    if shutil.which("R"):
        spec("ir", ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"], language="R")
        wrap("ir")


class Patience:
    """Lets the suite wait on a busy machine: its own helper waits 0.1 s for each message."""

    #: Kernels may send what a cell prints from tasks of their own, after they have said that the cell is over.
    code_with_late_outputs = ()

    def execute_helper(self, code, timeout=60, silent=False, store_history=True, stop_on_error=True):
        request = self.kc.execute(code, silent=silent, store_history=store_history, stop_on_error=stop_on_error)
        reply = self.get_non_kernel_info_reply(timeout=timeout)
        validate_message(reply, "execute_reply", request)
        states, outputs = [], []
        while "idle" not in states or (code in self.code_with_late_outputs and not outputs):
            message = self.kc.get_iopub_msg(timeout=timeout)
            validate_message(message, message["msg_type"], request)
            if message["msg_type"] == "status":
                states.append(message["content"]["execution_state"])
            elif message["msg_type"] == "execute_input":
                assert message["content"]["code"] == code
            else:
                outputs.append(message)
        assert states == ["busy", "idle"]
        return reply, outputs


class TestWrappedIpykernel(Patience, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-python3"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('oops', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello')", "def f(x):\n  return x*2\n\n"]
    incomplete_code_samples = ["print((", "def f(x):"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('on purpose')"
    code_execute_result = [{"code": "1+2", "result": "3"}]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
    ]
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_inspect_sample = "zip"
    code_history_pattern = "1?2*"
    # "range" is left out: ipykernel calls the present session 0, and in a fresh folder there is no other.
    supported_history_operations = ("tail", "search")


class TestWrappedWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "sandbox-python3"
    support_iopub_welcome = True


class TestWrappedBash(Patience, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-bash"
    language_name = "bash"
    file_extension = ".sh"
    code_hello_world = "echo hello, world"
    # bash_kernel sends stderr as stdout.

    @classmethod
    def setUpClass(cls):
        need(importlib.util.find_spec("bash_kernel"), "bash_kernel is not installed: pip install bash_kernel")
        super().setUpClass()


class TestWrappedDeno(Patience, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-deno"
    language_name = "typescript"
    code_hello_world = "console.log('hello, world')"
    code_stderr = "console.error('oops')"
    code_with_late_outputs = (code_hello_world, code_stderr)
    code_generate_error = "throw new Error('on purpose')"
    complete_code_samples = ["1", "console.log('x')"]


class TestWrappedXeus(Patience, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-xpython"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('oops', file=sys.stderr)"
    code_generate_error = "raise ValueError('on purpose')"
    code_execute_result = [{"code": "1+2", "result": "3"}]
    code_inspect_sample = "zip"

    @classmethod
    def setUpClass(cls):
        if platform.machine() != "x86_64":
            pytest.skip("the registry has xeus-python for x86_64 only")
        need(importlib.util.find_spec("xpython_launcher"), "xeus-python is not installed: pip install xeus-python")
        super().setUpClass()


class TestWrappedR(Patience, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-ir"
    language_name = "R"
    file_extension = ".r"
    code_hello_world = "cat('hello, world')"
    code_stderr = "message('oops')"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello')", "f <- function(x) {x*2}"]
    incomplete_code_samples = ["print((", "f <- function(x) {x"]
    code_generate_error = "stop('on purpose')"
    code_display_data = [{"code": "1+2", "mime": "text/plain"}, {"code": "plot(1:3)", "mime": "image/png"}]

    @classmethod
    def setUpClass(cls):
        asked = ["Rscript", "-e", "quit(status = !requireNamespace('IRkernel', quietly = TRUE))"]
        has = shutil.which("Rscript") and subprocess.run(asked, check=False, timeout=60).returncode == 0
        need(has, "IRkernel is not installed: apt-get install r-cran-irkernel")
        super().setUpClass()
