import sys

import pytest

from benchmarks.library_peer import LibraryPeer

#: Answers the second first, prints something of its own, refuses the third, and ends at the fourth.
_PEER = """
import sys
first, second = input(), input()
print("warming up", flush=True)
print(second, flush=True)
print(first, flush=True)
print(input(), "too many threads", flush=True)
input()
"""


def test_each_execution_gets_the_answer_to_its_own_number() -> None:
    peer = LibraryPeer([sys.executable, "-c", _PEER])
    first, second = peer.submit(), peer.submit()
    assert (first.result(10), second.result(10)) == (None, None)
    with pytest.raises(RuntimeError, match="too many threads"):
        peer.submit().result(10)
    with pytest.raises(RuntimeError, match="its program ended"):
        peer.submit().result(10)
    peer.close()
