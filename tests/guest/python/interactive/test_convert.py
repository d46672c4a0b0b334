"""Figures of libraries reach the host as frames that need nothing from the network."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from sandbox_kernel import Display, Sandbox
from sandbox_kernel.session.session import Session
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY
from tests.conftest import need


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Sandbox() as box, box.session(memory_mb=1024) as opened:
        yield opened


def shown(session: Session, code: str) -> tuple[Display, ...]:
    result = session.run(code, timeout=100)
    assert result.ok, result.stderr
    assert result.notes == ()
    return result.displays


def frames(session: Session, code: str) -> list[dict[str, object]]:
    return [display.data[FRAME] for display in shown(session, code) if FRAME in display.data]  # type: ignore[misc]


def needed(package: str) -> None:
    need(importlib.util.find_spec(package), f"{package} is not installed")


def test_a_plotly_figure_is_a_frame_and_its_library_is_sent_once(session: Session) -> None:
    needed("plotly")
    first = shown(session, "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[1, 2]))\nfig")
    assert [LIBRARY in display.data for display in first] == [True, False]
    again = shown(session, "fig.show()")
    assert [LIBRARY in display.data for display in again] == [False]
    assert again[0].data[FRAME]["libraries"] == [first[0].data[LIBRARY]["sha256"]]  # type: ignore[index]
