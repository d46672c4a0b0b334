"""Files of widgets: they arrive in pieces, within bounds, in the session of their widget."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.notebook.frames import gated_pages
from sandbox_kernel.notebook.frames.frame_comms import FrameComms
from sandbox_kernel.notebook.frames.gated_pages import Upload
from sandbox_kernel.untrusted import ContentRefused
from tests.notebook.frames.test_frame_comms import connect, run, value_of


def test_pieces_become_the_buffers_of_their_message() -> None:
    upload = Upload()
    upload.add("a", [b"left over"])
    upload.add("b", [b"12345"])
    upload.add("b", [memoryview(b"678"), "no bytes"])
    assert upload.buffers("b", [6, 0, 2]) == [b"123456", b"", b"78"]
    with pytest.raises(ContentRefused, match="missing"):
        upload.buffers("b", [8])


@pytest.mark.parametrize("sizes", [[4], [6], [-1, 6], [2.5, 2.5], "5", None, [5, *([0] * 64)]])
def test_sizes_that_are_not_those_of_the_pieces_are_refused(sizes: object) -> None:
    upload = Upload()
    upload.add("a", [b"12345"])
    with pytest.raises(ContentRefused):
        upload.buffers("a", sizes)


def test_a_page_cannot_fill_the_memory_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated_pages, "MAX_UPLOAD_BYTES", 10)
    upload = Upload()
    for _ in range(5):
        upload.add("a", [b"1234"])
    assert sum(map(len, upload._pieces)) <= 10
    with pytest.raises(ContentRefused, match="missing"):
        upload.buffers("a", [20])


@pytest.mark.slow
def test_a_file_of_twenty_megabytes_reaches_the_session() -> None:
    with Sandbox() as box, box.session(memory_mb=1024) as session:
        comms = FrameComms(lambda: [session])
        page = connect(comms)
        run(session, comms, "import ipywidgets\nup = ipywidgets.FileUpload()\nup")
        gate, model = session.present_state[0], str(value_of(session, "up.model_id")).strip("'")
        for number in range(5):
            piece = {"type": "piece", "gate": gate, "upload": "u"}
            page.hear({"content": {"data": piece}, "buffers": [bytes([number]) * (4 << 20)]})
        file = {"name": "big.bin", "type": "", "size": 20 << 20, "last_modified": 0}
        data = {"method": "update", "state": {"value": [file]}, "buffer_paths": [["value", 0, "content"]]}
        message = {"msg_type": "comm_msg", "msg_id": "m1", "comm_id": model, "data": data}
        page.say(type="comm", gate=gate, epoch=0, msg=message, upload="u", sizes=[20 << 20])
        assert page.done.wait(120)
        assert page.got[-1]["printed"] == ""
        assert value_of(session, "(len(up.value[0].content), bytes(up.value[0].content[-1:]))") == (
            f"({20 << 20}, b'\\x04')"
        )


def test_what_is_not_delivered_is_told_in_the_page() -> None:
    with Sandbox() as box, box.session() as session:
        comms = FrameComms(lambda: [session])
        page = connect(comms)
        page.say(type="comm", gate="x", epoch=0, msg={"msg_type": "comm_msg"}, upload="u", sizes=[1])
        assert (
            page.got[-1]["printed"] == "[a message of this widget was not delivered: some pieces of it are missing]\n"
        )
