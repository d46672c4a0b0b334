"""The ``conftest.py`` that ipykernel's tests get when they run against the Sandbox kernel. Copied beside them.

It replaces ipykernel's own, which makes mock kernels in the test's process.
"""

from collections.abc import Iterator

import pytest


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
