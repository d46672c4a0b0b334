"""Host functions as a program sees them: the module ``host`` of Python, ``host`` of JavaScript, the command ``host``.

The gate calls ``install`` of ``caller.py``. The host's side is ``sandbox_kernel/backends/functions``.
"""
