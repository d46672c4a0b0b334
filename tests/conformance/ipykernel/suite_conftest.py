"""The ``conftest.py`` that ipykernel's tests get when they run against the Sandbox kernel. Copied beside them.

It replaces ipykernel's own, which makes mock kernels in the test's process.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: How long the tests wait for one message: ipykernel's wait for a second, which a loaded machine does not keep.
PATIENCE_S = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know the option of pytest-cov, whose value a test asks for; nothing is covered here."""
    parser.addoption("--cov", default=None)


def pytest_configure() -> None:
    """Let every new kernel run a cell before its test begins, and let the tests be patient.

    Some tests sleep for a second and then expect that a cell runs. Here the first cell waits for its sandbox. Theirs
    take messages of earlier tests away until none comes for 0.1 s; here until the answer to a request of our own.
    """
    from tests import utils

    new_kernel = utils.new_kernel

    @contextmanager
    def warm_kernel(argv: object = None) -> Iterator[object]:
        with new_kernel(argv) as client:
            utils.get_reply(client, client.execute("pass", store_history=False))
            utils.wait_for_idle(client)
            utils.flush_channels(client)
            yield client

    def wait_for_idle(client: object, parent_msg_id: str | None = None) -> None:
        while True:
            message = client.get_iopub_msg(timeout=PATIENCE_S)
            idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            if idle and parent_msg_id in (None, message["parent_header"]["msg_id"]):
                return

    def flush_channels(client: object = None) -> None:
        client = client or utils.KC
        asked = client.kernel_info()
        utils.get_reply(client, asked)
        wait_for_idle(client, asked)

    utils.new_kernel, utils.wait_for_idle, utils.flush_channels = warm_kernel, wait_for_idle, flush_channels
    utils.assemble_output.__defaults__ = (PATIENCE_S, *utils.assemble_output.__defaults__[1:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Replace the kernel that the tests share when one of them fails, so that the next one does not fail for it.

    The new one has run a cell before the next test begins: some tests wait for two seconds only.
    """
    report = yield
    if report.failed:
        from tests import utils

        if utils.KM is not None:
            utils.stop_global_kernel()
            client = utils.start_global_kernel()
            utils.get_reply(client, client.execute("pass"))
    return report


@pytest.fixture(autouse=True)
def receipts_are_json() -> None:
    """Accept objects in bundles: the protocol allows JSON for MIME types that end with ``+json``, like our receipt's."""
    from tests import test_message_spec

    def check(self: object, change: dict[str, dict[str, object]]) -> None:
        for mime, value in change["new"].items():
            assert test_message_spec.mime_pat.match(mime)
            assert isinstance(value, str) or mime.endswith("+json")

    test_message_spec.MimeBundle._on_data_changed.func = check


@pytest.fixture(autouse=True)
def the_version_is_ours() -> None:
    """Accept any ``implementation_version``: ours is no version of ipykernel."""
    from tests import test_message_spec

    test_message_spec.KernelInfoReply.implementation_version.min = "0"
