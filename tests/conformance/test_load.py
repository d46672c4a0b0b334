"""Floods and queues: nothing is lost, nothing is mixed up."""

import pytest


@pytest.mark.parametrize(
    ("lines", "flush", "messages"),
    [(20_000, True, 20_001), pytest.param(100_000, False, 500, marks=pytest.mark.slow)],
)
def test_a_hundred_thousand_lines_arrive_complete_and_in_few_messages(kernel, lines, flush, messages):
    code = f"%%sandbox --output 4M --quiet\nfor i in range({lines}): print(i, flush={flush})"
    request = kernel.kc.execute(code, allow_stdin=False)
    # Read the reply first, as nbval and Jupyter's own suite do: that is when queues overflow.
    assert kernel.reply(request, timeout=60)["status"] == "ok"
    streams = [content["text"] for kind, content in kernel.outputs(request) if kind == "stream"]
    assert "".join(streams) == "".join(f"{i}\n" for i in range(lines))
    assert len(streams) < messages


def test_ten_megabytes_arrive_when_the_limit_allows_it(kernel):
    request = kernel.kc.execute("%%sandbox --output 16M --quiet\nprint('x' * 10_000_000)", allow_stdin=False)
    kernel.reply(request, timeout=60)
    assert sum(len(c["text"]) for kind, c in kernel.outputs(request) if kind == "stream") == 10_000_001


def test_the_output_limit_keeps_head_and_tail_and_says_so(kernel):
    _, outputs = kernel.run("%%sandbox --output 64K\nprint('head' + 'x' * 1_000_000 + 'tail')")
    text = "".join(content["text"] for kind, content in outputs if kind == "stream")
    assert text.startswith("head")
    assert text.endswith("tail\n")
    assert "truncated" in text
    assert len(text) < 70_000
    receipt = outputs[-1][1]["data"]["text/plain"]
    assert "--output" in receipt


@pytest.mark.attack("O16", "kernel")
def test_fifty_cells_in_a_row_answer_each_with_its_own_output(kernel):
    requests = [kernel.kc.execute(f"%%sandbox --quiet\nprint({n} * {n})", allow_stdin=False) for n in range(50)]
    for number, request in enumerate(requests):
        streams = "".join(c["text"] for kind, c in kernel.outputs(request, 60) if kind == "stream")
        assert streams == f"{number * number}\n"
        assert kernel.reply(request)["status"] == "ok"


@pytest.mark.attack("O16", "kernel")
def test_a_subshell_runs_beside_a_busy_cell_and_each_sees_its_own_output(kernel):
    created = kernel.reply(kernel.send("create_subshell_request", {}, "control"), channel="control")
    assert created["status"] == "ok"
    slow = kernel.kc.execute("import time\nprint('slow', flush=True)\ntime.sleep(60)", allow_stdin=False)
    kernel.wait_for_output(slow, "slow")
    content = {"code": "%%sandbox --fresh --quiet\nprint('beside')", "silent": False, "store_history": False}
    beside = kernel.send("execute_request", content, subshell_id=created["subshell_id"])
    texts = [c["text"] for kind, c in kernel.outputs(beside) if kind == "stream"]
    assert texts == ["beside\n"]
    assert kernel.reply(beside)["status"] == "ok"
    kernel.km.interrupt_kernel()
    assert kernel.reply(slow)["ename"] == "KeyboardInterrupt"
    kernel.outputs(slow)
    deleted = kernel.send("delete_subshell_request", {"subshell_id": created["subshell_id"]}, "control")
    assert kernel.reply(deleted, channel="control")["status"] == "ok"
