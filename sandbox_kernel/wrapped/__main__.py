"""``python -P -m sandbox_kernel.wrapped``: the launcher, as kernelspecs start it."""

import sys

from sandbox_kernel.util.late_import import leave_present_folder

leave_present_folder()

from sandbox_kernel.wrapped.launcher import main  # noqa: E402 - after the path is clean

sys.exit(main())
