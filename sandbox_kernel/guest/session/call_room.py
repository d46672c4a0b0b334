"""Room for the calls of a program, so that none of them has to ask the system for memory.

Python 3.11 and later keep the frames of calls in chunks of 16 KB. A call that does not fit takes a new chunk from the
system, and gives it back when it returns. A loop whose calls begin just at the end of a chunk does that each time, and
takes twice as long; which loop that is depends on how many calls of ours stand below the program's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: A chunk is a power of two, and at least as large as the frame that asks for it. This many words of a frame are a
#: little more than 256 KB, so nearly half of its chunk is left; memory that is not written to takes no page.
_WORDS = 33_000


def with_room(function: Any) -> Any:
    """Give everything that this function calls, directly or not, a quarter of a megabyte for its frames."""
    function.__code__ = function.__code__.replace(co_stacksize=_WORDS)
    return function
