"""A real JupyterHub with the configuration of docs/deploy.md: users pick kernels, and groups have limits."""

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import requests
import websocket

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deploy.md"
TOKEN = secrets.token_hex(16)
#: What the page leaves to whoever sets up the hub: who users are, where servers run, which ports are free.
REST = """
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home/{{username}}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 110
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.load_groups = {{"teachers": {{"users": ["bob"]}}, "others": {{"users": ["alice", "carol"]}}}}
c.JupyterHub.services = [{{"name": "tester", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "tester", "services": ["tester"], "scopes": ["admin:users", "admin:servers", "access:servers"]}}
]
"""
TAKES_MEMORY = "x = bytearray(900_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('enough')"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Hub:
    """A running hub, asked over its own HTTP interface."""

    def __init__(self, folder):
        self.folder, ports = folder, free_ports(3)
        self.url = f"http://127.0.0.1:{ports[0]}"
        (recipe,) = re.findall(r"```python\n(# jupyterhub_config\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
        rest = REST.format(
            ports=ports, folder=folder, token=TOKEN, python=sys.executable, proxy=os.environ["SANDBOX_KERNEL_HUB"]
        )
        (folder / "jupyterhub_config.py").write_text(recipe + rest)
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "jupyterhub"], cwd=folder, stdout=log, stderr=log)

    def ask(self, method, path, **data):
        answer = requests.request(
            method, self.url + path, json=data or None, headers={"Authorization": f"token {TOKEN}"}, timeout=60
        )
        answer.raise_for_status()
        return answer.json() if answer.content else {}

    def wait(self, what, path):
        """Ask until it answers as it should, for two minutes."""
        end = time.monotonic() + 120
        while True:
            with contextlib.suppress(requests.RequestException):
                found = self.ask("GET", path)
                if what(found):
                    return found
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()[-4000:]
            time.sleep(0.3)  # between two questions to another process

    def start_server(self, user):
        self.ask("POST", f"/hub/api/users/{user}/server")
        self.wait(lambda found: found["servers"].get("", {}).get("ready"), f"/hub/api/users/{user}")
        return self.wait(lambda found: found["kernelspecs"], f"/user/{user}/api/kernelspecs")["kernelspecs"]

    def run(self, user, kernel, code):
        """Run one cell in a new kernel; returns (printed text, names of errors)."""
        made = self.ask("POST", f"/user/{user}/api/kernels", name=kernel)["id"]
        address = f"{self.url.replace('http', 'ws', 1)}/user/{user}/api/kernels/{made}/channels"
        channel = websocket.create_connection(
            address, timeout=100, header=[f"Authorization: token {TOKEN}"], suppress_origin=True
        )
        try:
            header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": uuid.uuid4().hex,
                      "username": user, "version": "5.3", "date": ""}  # fmt: skip
            content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
            channel.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content,
                                     "channel": "shell", "buffers": []}))  # fmt: skip
            text, errors = "", []
            while True:
                message = json.loads(channel.recv())
                if message["parent_header"].get("msg_id") != header["msg_id"]:
                    continue
                if message["msg_type"] == "stream":
                    text += message["content"]["text"]
                elif message["msg_type"] == "error":
                    errors.append(message["content"]["ename"])
                elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                    return text, errors
        finally:
            channel.close()
            self.ask("DELETE", f"/user/{user}/api/kernels/{made}")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    running = Hub(tmp_path_factory.mktemp("hub"))
    try:
        running.wait(lambda found: True, "/hub/api/")
        for user in ("alice", "bob", "carol"):
            assert {"sandbox", "python3", "sandbox-python3"} <= running.start_server(user).keys()
            (running.folder / "home" / user / "secret.txt").write_text("secret")
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)


@pytest.mark.parametrize("kernel", ["sandbox", "python3", "sandbox-python3"])
def test_every_kernel_of_a_user_runs_and_does_not_see_the_home(hub, kernel):
    home = hub.folder / "home" / "alice"
    text, errors = hub.run("alice", kernel, f"import os\nprint(6 * 7, os.path.exists({str(home / 'secret.txt')!r}))")
    assert (text, errors) == ("42 False\n", [])


@pytest.mark.parametrize("kernel", ["sandbox", "python3"])
def test_the_limit_for_everybody_holds_and_those_of_a_group_and_of_a_user_are_others(hub, kernel):
    _, errors = hub.run("alice", kernel, TAKES_MEMORY)
    assert errors and errors[0] in ("MemoryExceeded", "MemoryError")
    for user in ("bob", "carol"):
        assert hub.run(user, kernel, TAKES_MEMORY) == ("enough\n", [])


def test_it_runs_as_an_ordinary_user():
    assert os.getuid() != 0, "run it with: make test-hub"
