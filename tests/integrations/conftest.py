"""The frameworks are large and have an environment of their own: ``make test-frameworks`` makes it and runs this folder.

Everywhere else these tests are not collected.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("SANDBOX_KERNEL_FRAMEWORKS") else ["test_*.py"]
