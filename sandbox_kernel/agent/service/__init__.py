"""``sandbox-kernel serve``: runs programs over HTTP, with the requests and answers of SandboxFusion's ``/run_code``.

Callers: ``commands/serve.py``. Read ``http_service.py`` first, then ``run_code.py`` and ``run_queue.py``.
"""
