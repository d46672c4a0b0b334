"""What does the egress proxy cost, against a direct connection on the same loopback?

    python -m benchmarks.bench_network [--rounds 200] [--megabytes 200]

Requests are made in turns, each on a new connection. A function resolves the names, so DNS is not measured.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial

from benchmarks.measure import interleaved, machine, table
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
from sandbox_kernel.net.safe_client import SafeClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n" + b"x" * 1000
NOTE = (
    "The proxy judges and pins every connection, and SafeClient every hop besides; direct is a plain `http.client`. "
    "Other sandboxes do not take part: those that have a proxy resolve names themselves, and there is no network here."
)
CHUNK = b"x" * 65536


def serve(listener: socket.socket, megabytes: int) -> None:
    """Serve a long stream for /big, and a small page for everything else."""
    while True:
        connection, _ = listener.accept()
        with connection:
            head = connection.recv(65536)
            if b" /big " in head:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (megabytes << 20))
                for _ in range(megabytes << 4):
                    connection.sendall(CHUNK)
            else:
                connection.sendall(ANSWER)


def get(address: tuple[str, int], target: str, tunnel: str = "") -> int:
    connection = http.client.HTTPConnection(*address, timeout=60)
    if tunnel:
        host, _, port = tunnel.partition(":")
        connection.set_tunnel(host, int(port))
    connection.request("GET", target)
    answer = connection.getresponse()
    size = 0
    while piece := answer.read(1 << 20):
        size += len(piece)
    connection.close()
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    origin = socket.create_server(("127.0.0.1", 0))
    port = origin.getsockname()[1]
    threading.Thread(target=serve, args=(origin, options.megabytes), daemon=True).start()
    site = f"site.test:{port}"
    policy = FetchPolicy(
        allowed_domains=(site,),
        allow_private_for=("127.0.0.1",),
        max_requests_per_minute=10**9,
        max_response_body_bytes=1 << 40,
        request_timeout_s=600,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    door = listener.getsockname()[:2]
    client = SafeClient(policy, lambda host, port: ["127.0.0.1"])
    with EgressProxy(policy, resolver=lambda host, port: ["127.0.0.1"]) as proxy:
        proxy.start(listener)
        ways: dict[str, Callable[[str], object]] = {
            "direct": lambda path: get(("127.0.0.1", port), path),
            "proxy, plain": lambda path: get(door, f"http://{site}{path}"),
            "proxy, tunnel": lambda path: get(door, path, site),
            "SafeClient": lambda path: client.fetch(f"http://{site}{path}"),
        }
        times = interleaved({name: partial(go, "/") for name, go in ways.items()}, options.rounds)
        print(f"{machine()}\n")
        print(table("One request of 1000 bytes, a connection for each", times))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(3):
            for name, go in ways.items():
                start = time.perf_counter()
                go("/big")
                rates[name].append(options.megabytes / (time.perf_counter() - start))
    print(f"### One answer of {options.megabytes} MB (medians of 3)\n\n| | MB/s | ÷ direct |\n|---|---|---|")
    base = statistics.median(rates["direct"])
    for name, found in rates.items():
        print(f"| {name} | {statistics.median(found):.0f} | {statistics.median(found) / base:.2f} |")
    print(f"\n{NOTE}")


if __name__ == "__main__":
    main()
