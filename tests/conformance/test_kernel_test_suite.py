"""Jupyter's own kernel test suite, complete, against the kernel of this tree."""

# ruff: noqa: RUF012 - the suite reads its samples from class attributes
import jupyter_kernel_test


class TestSandboxKernel(jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('oops', file=sys.stderr)"
    completion_samples = [
        {"text": "%%sandbox --time", "matches": {"--timeout"}},
        {"text": "%sandbox rep", "matches": {"report"}},
    ]
    complete_code_samples = ["1", "print('hello')", "def f(x):\n  return x*2\n\n", "%sandbox report"]
    incomplete_code_samples = ["print((", "def f(x):", "%%sandbox rust"]
    invalid_code_samples = ["import = 7q", "%sandbox --nope"]
    code_page_something = "%%sandbox?"
    code_generate_error = "raise ValueError('on purpose')"
    code_execute_result = [{"code": "1+2", "result": "3"}, {"code": "'a' * 3", "result": "'aaa'"}]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "%sandbox policy", "mime": "text/html"},
    ]
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_inspect_sample = "%%sandbox --timeout"
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")


class TestWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "sandbox"
    support_iopub_welcome = True
