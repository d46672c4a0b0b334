"""Sessions for tests: one jail each, opened from the pool, always closed."""

from collections.abc import Callable, Iterator

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session

Open = Callable[..., Session]
Value = Callable[[Session, str], str]


@pytest.fixture(scope="session")
def backend() -> ProcessBackend:
    return ProcessBackend()


@pytest.fixture
def open_one(backend: ProcessBackend) -> Iterator[Open]:
    opened: list[Session] = []

    def make(language: str = "python", **options: object) -> Session:
        session = open_session(backend, language, **options)  # type: ignore[arg-type]
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


@pytest.fixture
def session(open_one: Open) -> Session:
    return open_one()


@pytest.fixture
def value() -> Value:
    """The value of an expression as the session shows it."""

    def show(session: Session, expression: str) -> str:
        result = session.run(expression)
        assert result.ok, (result.status, result.stderr, result.notes)
        return str(result.displays[-1].data["text/plain"])

    return show
