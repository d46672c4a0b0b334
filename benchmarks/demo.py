"""A short tour of the library: each line is run for real, and what happened is printed."""

from __future__ import annotations

import time

from sandbox_kernel import Limits, Sandbox, SandboxPolicy, Status
from sandbox_kernel.model import describe_end

STEPS = (
    ("An ordinary program", "print(6 * 7)", "python", {}),
    ("It sees nobody's home", "import os; print(os.listdir('/home'), os.getuid())", "python", {}),
    ("It reaches no network", "import socket; socket.create_connection(('192.0.2.1', 80), 2)", "python", {}),
    ("A shell, in its own folder", "pwd; ls -la; echo 'exit code 3 is a result'; exit 3", "command", {}),
    ("An endless loop", "print('so far'); \nwhile True: pass", "python", {"timeout": 1}),
    ("Too much memory", "data = [bytearray(b'x' * (16 << 20)) for _ in range(99)]", "python", {"memory_mb": 128}),
    (
        "A fork bomb",
        "import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(9)\nexcept OSError as e: print(e)",
        "python",
        {"limits": Limits(processes=16)},
    ),
    ("A flood", "print('x' * 100_000_000)", "python", {"limits": Limits(output_bytes=200)}),
)


def main() -> None:
    with Sandbox(SandboxPolicy.preset("standard")) as box:
        for title, code, language, options in STEPS:
            began = time.perf_counter()
            result = box.run(code, language, **{"timeout": 10, **options})
            took = (time.perf_counter() - began) * 1e3
            print(f"\n— {title} ({language})")
            print("\n".join(f"    {line}" for line in code.splitlines()))
            shown = (result.stdout + result.stderr).strip()
            print("\n".join(f"  > {line[:150]}" for line in shown.splitlines()[-4:]))
            print(f"  = {describe_end(result)}; {took:.0f} ms; {result.isolation}")
            assert result.status in tuple(Status)
        print("\n— What is enforced here, measured by attacking ourselves\n")
        print(box.report())


if __name__ == "__main__":
    main()
