"""Probes of the Jupyter protocol. Each probe tests a running kernel, and is the same for all kernels."""

from __future__ import annotations

import time
import uuid

from benchmarks.kernel_client import NoAnswer, Run, RunningKernel
from benchmarks.kernel_finding import Feature, Finding, works
from benchmarks.kernel_programs import STARTED, Programs

_INFO_FIELDS = ("name", "version", "mimetype", "file_extension", "pygments_lexer", "codemirror_mode")


def protocol_version(kernel: RunningKernel, _: Programs) -> Finding:
    announced = kernel.ask("kernel_info_request")["protocol_version"]
    written = kernel.kernel.spec.get("kernel_protocol_version")
    if written is None:
        return Finding("~", f"{announced}, kernelspec silent")
    return works(announced == written, announced if announced == written else f"{announced}, kernelspec says {written}")


def iopub_welcome(kernel: RunningKernel, _: Programs) -> Finding:
    return works(kernel.first_iopub == "iopub_welcome")


def streaming(kernel: RunningKernel, programs: Programs) -> Finding:
    times = [message.at for message in kernel.run(programs.slowly).of_kind("stream")]
    return works(bool(times) and times[-1] - times[0] > 0.5)


def separate_stderr(kernel: RunningKernel, programs: Programs) -> Finding:
    run = kernel.run(programs.to_stderr)
    return works(run.text("stderr").strip() == "e", "" if run.text("stderr") else "merged into stdout")


def display_data(kernel: RunningKernel, programs: Programs) -> Finding:
    if programs.display is None:
        return Finding("–")
    return works(_shows(kernel.run(programs.display), "display_data", "first"))


def update_display_data(kernel: RunningKernel, programs: Programs) -> Finding:
    if programs.display is None or programs.update is None:
        return Finding("–")
    kernel.run(programs.display)
    return works(_shows(kernel.run(programs.update), "update_display_data", "second"))


def _shows(run: Run, kind: str, text: str) -> bool:
    """Whether a rich output contains the text; a kernel may show other things too."""
    return any(text in str(message.content["data"]) for message in run.of_kind(kind))


def execute_result(kernel: RunningKernel, programs: Programs) -> Finding:
    if programs.value is None:
        return Finding("–", "no values in this language")
    results = [m.content["data"].get("text/plain", "") for m in kernel.run(programs.value).of_kind("execute_result")]
    if results and results[0] != "3":
        return Finding("~", f"text is {results[0]!r}")
    return works(results == ["3"])


def error_message(kernel: RunningKernel, programs: Programs) -> Finding:
    run = kernel.run(programs.error)
    if run.reply["status"] != "error":
        return Finding("✗", f"reply says {run.reply['status']}")
    errors = run.of_kind("error")
    lacking = [key for key in ("ename", "traceback") if not (errors and errors[0].content.get(key))]
    if lacking:
        return Finding("✗", f"no {' and no '.join(lacking)}")
    name = errors[0].content["ename"]
    return Finding("✓", name) if name.isidentifier() else Finding("~", f"ename is {name!r}")


def stop_on_error(kernel: RunningKernel, programs: Programs) -> Finding:
    failing = kernel.execute(programs.error)
    following = kernel.execute(programs.hello)
    kernel.until_idle(failing)
    status = kernel.reply(following)["status"]
    kernel.until_idle(following)
    return works(status == "aborted", "" if status == "aborted" else f"next cell: {status}")


def go_on_after_error(kernel: RunningKernel, programs: Programs) -> Finding:
    failing = kernel.execute(programs.error, stop_on_error=False)
    following = kernel.execute(programs.hello)
    kernel.until_idle(failing)
    status = kernel.reply(following)["status"]
    kernel.until_idle(following)
    return works(status == "ok", "" if status == "ok" else f"next cell: {status}")


def silent(kernel: RunningKernel, programs: Programs) -> Finding:
    run = kernel.run(programs.hello, silent=True)
    kernel.run(programs.hello)
    published = {*(message.kind for message in run.messages), *kernel.late_messages(run.request)} - {"status"}
    return works(not published, f"sent {', '.join(sorted(published))}" if published else "")


def store_history(kernel: RunningKernel, programs: Programs) -> Finding:
    before = kernel.run(programs.hello).reply["execution_count"]
    kernel.run(programs.hello, store_history=False)
    after = kernel.run(programs.hello).reply["execution_count"]
    return works(after == before + 1, "" if after == before + 1 else "counted")


def user_expressions(kernel: RunningKernel, programs: Programs) -> Finding:
    reply = kernel.run(programs.hello, user_expressions={"a": programs.expression}).reply
    return works(bool(reply.get("user_expressions")))


def stdin(kernel: RunningKernel, programs: Programs) -> Finding:
    request = kernel.execute(programs.ask, allow_stdin=True)
    prompt = kernel.prompt(request, patience=6)
    kernel.answer("bob")
    kernel.text_until(request, "got bob")
    kernel.reply(request)
    return works("who?" in prompt)


def no_stdin(kernel: RunningKernel, programs: Programs) -> Finding:
    run = kernel.run(programs.ask, allow_stdin=False, patience=6)
    refused = run.reply["status"] == "error"
    return works(refused, str(run.reply.get("ename", "")) if refused else "no error")


def is_complete(kernel: RunningKernel, programs: Programs) -> Finding:
    wanted = {"complete": programs.hello, "incomplete": programs.incomplete, "invalid": programs.invalid}
    found = {name: kernel.ask("is_complete_request", {"code": code})["status"] for name, code in wanted.items()}
    wrong = [f"{name} is {status}" for name, status in found.items() if name != status]
    return Finding(("✓", "~", "✗", "✗")[len(wrong)], ", ".join(wrong))


def complete(kernel: RunningKernel, programs: Programs) -> Finding:
    code = programs.to_complete
    reply = kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)}, patience=10)
    typed = bool(reply.get("metadata", {}).get("_jupyter_types_experimental"))
    return works(bool(reply["matches"]), "with types" if typed else "")


def inspect(kernel: RunningKernel, programs: Programs) -> Finding:
    code = programs.to_inspect
    reply = kernel.ask("inspect_request", {"code": code, "cursor_pos": len(code), "detail_level": 0})
    return works(bool(reply.get("found")))


def history(kernel: RunningKernel, programs: Programs) -> Finding:
    for _ in range(3):
        kernel.run(programs.hello)
    tail = {"hist_access_type": "tail", "n": 2, "raw": True, "output": False}
    search = {"hist_access_type": "search", "pattern": programs.hello, "n": 1, "raw": True, "output": False}
    counts = [len(kernel.ask("history_request", content).get("history", [])) for content in (tail, search)]
    return works(counts == [2, 1], "" if counts == [2, 1] else f"{counts[0]} of 2, {counts[1]} of 1")


def comms(kernel: RunningKernel, _: Programs) -> Finding:
    kernel.ask("comm_info_request")
    opened = kernel.send("comm_open", {"comm_id": uuid.uuid4().hex, "target_name": "unknown", "data": {}})
    closed = [message for message in kernel.until_idle(opened, patience=5) if message.kind == "comm_close"]
    return works(bool(closed), "" if closed else "no comm_close")


def subshells(kernel: RunningKernel, programs: Programs) -> Finding:
    advertised = "kernel subshells" in kernel.ask("kernel_info_request").get("supported_features", [])
    try:
        subshell = kernel.ask("create_subshell_request", channel="control", patience=3)["subshell_id"]
    except (NoAnswer, KeyError):
        return Finding("✗", "but advertised" if advertised else "")
    running = kernel.execute(programs.wait)
    kernel.text_until(running, STARTED)
    kernel.reply(kernel.send("kernel_info_request", {}, subshell=subshell), patience=3)
    kernel.interrupt()
    kernel.until_idle(running, patience=5)
    return Finding("✓" if advertised else "~", "" if advertised else "not advertised")


def debugger(kernel: RunningKernel, _: Programs) -> Finding:
    info = kernel.ask("kernel_info_request")
    advertised = bool(info.get("debugger")) or "debugger" in info.get("supported_features", [])
    try:
        request = {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}
        there = bool(kernel.ask("debug_request", request, channel="control", patience=3).get("success"))
    except NoAnswer:
        there = False
    if there == advertised:
        return works(there)
    return Finding("✗", "but advertised") if advertised else Finding("~", "not advertised")


def language_info(kernel: RunningKernel, _: Programs) -> Finding:
    info = kernel.ask("kernel_info_request")["language_info"]
    lacking = [field for field in _INFO_FIELDS if not info.get(field)]
    return works(not lacking, f"no {', '.join(lacking)}" if lacking else "")


def banner_and_help(kernel: RunningKernel, _: Programs) -> Finding:
    info = kernel.ask("kernel_info_request")
    return works(bool(info.get("banner") and info.get("help_links")), "" if info.get("help_links") else "no links")


def info_on_control(kernel: RunningKernel, _: Programs) -> Finding:
    return works(kernel.ask("kernel_info_request", channel="control")["status"] == "ok")


def flood(kernel: RunningKernel, programs: Programs) -> Finding:
    """Read the reply first and the output afterwards, as notebook testers do; then queues can overflow."""
    wanted = [str(number) for number in range(100_000)]
    request = kernel.execute(programs.flood)
    kernel.reply(request, patience=60)
    lines = kernel.output_of(request, len("\n".join(wanted)), patience=3).split()
    return works(lines == wanted, "" if lines == wanted else f"{len(lines)} lines came")


def interrupt(kernel: RunningKernel, programs: Programs) -> Finding:
    mode = str(kernel.kernel.spec.get("interrupt_mode", "signal"))
    running = kernel.execute(programs.wait)
    kernel.text_until(running, STARTED)
    kernel.interrupt()
    try:
        kernel.until_idle(running, patience=5)
        status = kernel.reply(running, patience=5)["status"]
    except NoAnswer as error:
        return Finding("✗", f"by {mode}: the kernel dies" if error.died else f"by {mode}: no reaction")
    kernel.run(programs.hello, expected="hi")
    return Finding(
        "✓" if status == "error" else "~", f"by {mode}" if status == "error" else f"by {mode}, but status {status!r}"
    )


def shutdown(kernel: RunningKernel, _: Programs) -> Finding:
    reply = kernel.ask("shutdown_request", {"restart": False}, channel="control")
    deadline = time.monotonic() + 8
    while kernel.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    gone = not kernel.alive
    return works(gone and reply.get("status") == "ok", "" if gone else "stays")


def logos(kernel: RunningKernel, _: Programs) -> Finding:
    names = ("logo-svg.svg", "logo-64x64.png", "logo-32x32.png")
    there = [name for name in names if (kernel.kernel.spec_folder / name).is_file()]
    return Finding({3: "✓", 0: "✗"}.get(len(there), "~"), f"{len(there)} of 3")


def listed_after_install(kernel: RunningKernel, _: Programs) -> Finding:
    return works(kernel.kernel.listed_after_install, "" if kernel.kernel.listed_after_install else "needs a command")


PROTOCOL = (
    Feature("protocol version", protocol_version),
    Feature("`iopub_welcome`", iopub_welcome),
    Feature("output streams while a cell runs", streaming),
    Feature("stderr on its own stream", separate_stderr),
    Feature("`display_data`", display_data),
    Feature("`update_display_data`", update_display_data),
    Feature("`execute_result`", execute_result),
    Feature("`error` with a name and a traceback", error_message),
    Feature("an error aborts the queued cells", stop_on_error),
    Feature("`stop_on_error=False` does not", go_on_after_error),
    Feature("`silent` publishes nothing", silent),
    Feature("`store_history=False` does not count", store_history),
    Feature("`user_expressions`", user_expressions),
    Feature("`input()` asks the user", stdin),
    Feature("`input()` without a user is an error", no_stdin),
    Feature("completeness: yes, not yet, never", is_complete),
    Feature("completion", complete),
    Feature("inspection", inspect),
    Feature("history: tail and search", history),
    Feature("an unknown comm is closed", comms),
    Feature("subshells answer while a cell runs", subshells),
    Feature("debugger", debugger),
    Feature("`language_info` complete", language_info),
    Feature("banner and help links", banner_and_help),
    Feature("`kernel_info` on the control channel", info_on_control),
    Feature("100 000 lines, none lost", flood, ends_kernel=True),
    Feature("interrupt", interrupt),
    Feature("shutdown", shutdown, ends_kernel=True),
    Feature("logos", logos),
    Feature("listed after `pip install` alone", listed_after_install),
)
