from collections.abc import Iterator

import pytest

from tests.browser.frames.listeners import Listeners


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()
