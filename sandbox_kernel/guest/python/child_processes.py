"""Child interpreters of a session (``multiprocessing``, joblib's loky) start like ordinary Pythons.

Our own interpreter runs with ``-I`` and ``-S``, and ``multiprocessing`` hands its options on: such a child would find
no installed package.
"""

from __future__ import annotations

import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

#: The options that belong to our interpreter, and not to the user's.
_OURS = ("-I", "-S", "-E", "-s", "-P")


def plain_children() -> None:
    """Leave our own options out of what children inherit. Called once, before the first cell."""
    module: Any = subprocess
    inherited = module._args_from_interpreter_flags

    def of_the_user() -> List[str]:
        return [option for option in inherited() if option not in _OURS]

    module._args_from_interpreter_flags = of_the_user
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._args_from_interpreter_flags = of_the_user
