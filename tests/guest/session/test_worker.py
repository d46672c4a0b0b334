"""How deep a program's calls stand does not matter for how long they take."""

from __future__ import annotations

from sandbox_kernel import Sandbox

#: At each depth a loop of calls. Counts how often the kernel had to give the process a page meanwhile.
CALLS = """import resource
def nothing():
    pass
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(300):
        nothing()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def deeper(depth):
    return [faults()] + (deeper(depth - 1) if depth else [])
deeper(300)
print(max(deeper(300)))"""


def test_calls_at_any_depth_take_memory_from_the_system_only_once() -> None:
    with Sandbox() as box, box.session() as session:
        result = session.run(CALLS)
    assert result.ok, result.stderr
    assert int(result.stdout) < 100
