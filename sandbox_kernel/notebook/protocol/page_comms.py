"""Comms between this kernel and its pages: what ``comm.create_comm`` makes, for ipywidgets and for our frames."""

# mypy: disallow-untyped-calls=False, disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import comm
from comm.base_comm import BaseComm

#: Sends a message of a comm: type, content, metadata, buffers, topic.
Publish = Callable[[str, dict[str, object], Any, Any, Any], None]


def use_comms(publish: Publish) -> None:
    """Let comms of this process send through ``publish``."""

    class PageComm(BaseComm):
        """A comm over the iopub channel."""

        def publish_msg(
            self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
        ) -> None:
            """Send one message to the pages."""
            publish(
                msg_type, {"data": data or {}, "comm_id": self.comm_id, **keys}, metadata or {}, buffers, self.topic
            )

    comm.create_comm = PageComm
