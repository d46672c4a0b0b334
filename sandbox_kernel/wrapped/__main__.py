"""``python -m sandbox_kernel.wrapped``: the launcher, as kernelspecs start it."""

import sys

from sandbox_kernel.wrapped.launcher import main

sys.exit(main())
