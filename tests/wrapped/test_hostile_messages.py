"""A cell of a wrapped kernel sends messages of its own making: what of them reaches a front end."""

from __future__ import annotations

import pytest

SEND = """
kernel = get_ipython().kernel
def send(kind, content, **extra):
    kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent(), **extra)
"""


@pytest.mark.parametrize(
    "hostile",
    [
        "send('comm_open', {'comm_id': 'a', 'target_name': 'jupyter.widget', 'data': {}})",
        "send('display_data', {'data': {'application/javascript': 'evil()'}, 'metadata': {}})",
        "send('display_data', {'data': {'text/html': '<img src=x onerror=evil()>'}, 'metadata': {}})",
        "send('made_up', {'evil': 'evil()'})",
        "send('stream', {'name': 'stdout', 'text': ['evil()']})",
        "send('error', 'evil()')",
        "kernel.iopub_socket.send_multipart([b'evil()'] * 2000)",
        "kernel.iopub_socket.send_multipart([b'<IDS|MSG>', b'', b'{' * 100000, b'{}', b'{}', b'{}', b'evil()'])",
        "kernel.iopub_socket.send_multipart([b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'{\"x\":[' + b'[],' * 3000000 + b'[]]}'])",
    ],
)
def test_what_a_page_must_not_get_does_not_arrive_and_the_kernel_goes_on(kernel, hostile):
    kernel.run(SEND)
    _, outputs = kernel.run(hostile)
    assert "evil()" not in str(outputs)
    assert {kind for kind, _ in outputs} <= {"stream", "display_data"}
    assert kernel.text("print('goes on')") == "goes on\n"


def test_a_message_of_200_mb_is_dropped_and_the_relay_stays_small(kernel):
    import psutil

    kernel.run(SEND)
    kernel.run("kernel.iopub_socket.send_multipart([b'<IDS|MSG>', b'', b'x' * 200_000_000])", timeout=90)
    assert kernel.text("print('goes on')") == "goes on\n"
    assert psutil.Process(kernel.pid).memory_info().rss < 400_000_000
