"""A training loop on an accelerator, behind the walls and without them, in turn.

    python -m benchmarks.bench_gpu

Needs an NVIDIA card and torch in this Python. The loop measures itself after its first steps, so that the start of the
interpreter and of the card is not in it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from sandbox_kernel import Limits, Sandbox, SandboxPolicy

_TRAIN = """
import time, torch
torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(4)]).cuda()
best = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(4096, 4096, device="cuda")
def step():
    best.zero_grad(); loss = (net(x) ** 2).mean(); loss.backward(); best.step(); return loss
for _ in range(10): step()
torch.cuda.synchronize(); began = time.perf_counter()
for _ in range(60): loss = step()
torch.cuda.synchronize()
print(time.perf_counter() - began, float(loss))
"""
_ROUNDS = 4


def main() -> None:
    """Print both medians, their ratio, and whether both computed the same."""
    plain, inside, losses = [], [], set()
    with Sandbox(SandboxPolicy.preset("gpu")) as box:
        session = box.session("python", memory_mb=16_000, checkpoints=5)
        for _ in range(_ROUNDS):
            said = subprocess.run([sys.executable, "-c", _TRAIN], capture_output=True, text=True, check=True).stdout
            plain.append(float(said.split()[0]))
            losses.add(said.split()[1])
            result = session.run(_TRAIN, timeout=300)
            if not result.ok:
                raise SystemExit(result.stderr)
            inside.append(float(result.stdout.split()[0]))
            losses.add(result.stdout.split()[1])
    outside_s, inside_s = statistics.median(plain), statistics.median(inside)
    print(f"| training loop of 60 steps | {outside_s:.4f} s | {inside_s:.4f} s | {outside_s / inside_s:.3f} |")
    _copies()
    print(f"losses: {sorted(losses)}; peak on the card {(result.peak_gpu_memory_bytes or 0) >> 20} MB")


def _copies() -> None:
    """Print how long a named state with 1 GB of tensors takes to be copied to the host's memory, and back."""
    limits = Limits(disk_mb=8_000)
    with Sandbox(SandboxPolicy.preset("gpu")) as box, box.session("python", memory_mb=16_000, limits=limits) as session:
        session.run("import torch", timeout=300)
        session.run("x = torch.ones(256 << 20, device='cuda'); torch.cuda.synchronize()", timeout=300)
        began = time.perf_counter()
        session.checkpoint("one")
        copied = time.perf_counter()
        session.checkout("one")
        session.run("float(x[0])", timeout=300)
        loaded = time.perf_counter()
    print(f"| checkpoint of 1 GB of tensors | {copied - began:.2f} s |")
    print(f"| checkout of it, with a new context on the card | {loaded - copied:.2f} s |")


if __name__ == "__main__":
    main()
