"""The service over real HTTP: SandboxFusion's requests and answers, the token, the full queue, the drain."""

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel.agent import http_server
from sandbox_kernel.agent.http_server import listen
from sandbox_kernel.agent.run_service import MAX_BODY, MAX_HELD, RunQueue, RunService

TOKEN = "0123456789abcdef0123"
#: Leaves a file that is larger than what the buffers of a connection hold.
LARGE_FILE = "open('a', 'wb').write(bytes(8 << 20))"
#: How many clients come at once under load.
CLIENTS = 16


class Service(contextlib.AbstractContextManager["Service"]):
    """A service on its own thread."""

    def __init__(self, workers: int = 2, waiting: int = 8) -> None:
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self._ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._main(workers, waiting)))
        self.thread.start()
        assert self._ready.wait(30)

    async def _main(self, workers: int, waiting: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue = RunQueue(None, workers, waiting)
        self.http = RunService(self.queue, TOKEN)
        self._ready.set()
        await self.http.serve(self._listener)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.http.stop)
        self.thread.join(60)
        assert not self.thread.is_alive()

    def ask(
        self, path: str, body: object = None, method: str | None = None, token: str | None = TOKEN, **more: str
    ) -> tuple[int, dict[str, str], object]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method or ("GET" if body is None else "POST"), path, data, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        plain = response.headers.get_content_type() == "text/plain"
        return response.status, dict(response.headers), text.decode() if plain else json.loads(text)

    def run(self, **fields: object) -> dict[str, object]:
        status, _, answer = self.ask("/run_code", fields)
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as made:
        yield made


def test_a_program_runs_and_the_answer_has_every_field_of_sandboxfusion(service: Service) -> None:
    answer = service.run(code="print(input()); import sys; sys.exit(0)", language="python", stdin="hello")
    run = answer.pop("run_result")
    assert answer == {
        "status": "Success", "message": "", "compile_result": None, "executor_pod_name": None, "files": {},
    }  # fmt: skip
    assert isinstance(run, dict)
    assert run.pop("execution_time") > 0
    assert run == {"status": "Finished", "return_code": 0, "stdout": "hello\n", "stderr": ""}


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {"Origin": "http://localhost:3000"}),
        (403, {"Origin": "null"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (421, {"Host": "evil.example"}),
        (421, {"Host": "127.0.0.1.evil.example:8080"}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Type": "multipart/form-data; boundary=x"}),
    ],
)
def test_a_web_page_cannot_post_even_with_the_token(service: Service, status: int, headers: dict[str, str]) -> None:
    found, _, answer = service.ask("/run_code", {"code": "print(1)", "language": "python"}, **headers)
    assert found == status
    assert isinstance(answer, dict)
    assert answer["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:8080", "Content_Type": "application/json; charset=utf-8"},
        {"Host": "[::1]:8080", "Sec_Fetch_Site": "none"},
        {"Host": "127.0.0.1", "Content_Type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_program_can_post_by_every_name_of_this_machine(service: Service, headers: dict[str, str]) -> None:
    assert service.ask("/run_code", {"code": "print(1)", "language": "python"}, **headers)[0] == 200


@pytest.mark.slow
def test_a_failure_and_a_time_limit_are_failed_as_in_sandboxfusion(service: Service) -> None:
    answer = service.run(code="raise ValueError('x')", language="python")
    assert (answer["status"], answer["run_result"]["return_code"]) == ("Failed", 1)  # type: ignore[index]
    answer = service.run(code="while True: pass", language="python", run_timeout=1)
    run = answer["run_result"]
    assert isinstance(run, dict)
    assert (answer["status"], run["status"], run["return_code"]) == ("Failed", "TimeLimitExceeded", None)


def test_a_program_is_compiled_and_a_compile_error_is_in_its_own_result(service: Service) -> None:
    answer = service.run(code="int main() { return 3; }", language="cpp", compile_timeout=60)
    assert answer["compile_result"]["return_code"] == 0  # type: ignore[index]
    assert (answer["status"], answer["run_result"]["return_code"]) == ("Failed", 3)  # type: ignore[index]
    answer = service.run(code="int main() { return x; }", language="cpp", compile_timeout=60)
    assert answer["run_result"] is None
    assert answer["compile_result"]["return_code"] != 0  # type: ignore[index]
    assert "x" in answer["compile_result"]["stderr"]  # type: ignore[index]


@pytest.mark.parametrize(("language", "code"), [("bash", "echo 7"), ("nodejs", "console.log(7)")])
def test_languages_have_the_names_of_sandboxfusion(service: Service, language: str, code: str) -> None:
    assert service.run(code=code, language=language)["run_result"]["stdout"] == "7\n"  # type: ignore[index]


def test_files_go_in_and_out_and_requests_share_none(service: Service) -> None:
    files = {"data/in.txt": base64.b64encode(b"41").decode(), "none.txt": None}
    code = "open('out.bin', 'wb').write(bytes([int(open('data/in.txt').read()) + 1]))"
    answer = service.run(code=code, language="python", files=files, fetch_files=["out.bin", "missing"])
    assert answer["files"] == {"out.bin": base64.b64encode(b"*").decode()}
    assert answer["message"] == "not returned, because missing or too large: missing"
    assert service.run(code="import os; print(os.listdir())", language="python")["run_result"]["stdout"] == "[]\n"  # type: ignore[index]


def test_files_that_the_program_left_as_they_were_are_returned_too(service: Service) -> None:
    names = ["same", "d/deep", "rewritten", "removed", "moved", "e/gone"]
    files = {name: base64.b64encode(name.encode()).decode() for name in names}
    code = (
        "import os, shutil; open('rewritten', 'w').write('rewritten'); os.remove('removed'); os.rename('moved', 'new')\n"
        "shutil.rmtree('e')"
    )
    answer = service.run(code=code, language="python", files=files, fetch_files=[*names, "new", "./same"])
    kept = {name: files[name] for name in ("same", "d/deep", "rewritten")}
    assert answer["files"] == {**kept, "new": files["moved"], "./same": files["same"]}


@pytest.mark.parametrize("code", ["rm a; ln -s b a", "rm a; mkdir a", "echo > a; sleep 9", "echo > a; touch {1..1500}"])
def test_a_file_that_the_program_changed_is_never_returned_as_it_came(service: Service, code: str) -> None:
    answer = service.run(code=code, language="bash", files={"a": "YQ=="}, fetch_files=["a"], run_timeout=2)
    assert (answer["files"], answer["message"]) == ({}, "not returned, because missing or too large: a")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"no json", "Expecting value"),
        (b'{"code": "1", "language": "python", "code": "2"}', "stands twice"),
        (b'{"code": "1", "files": {"a": "", "a": ""}}', "stands twice"),
        ([], "Expected `object`"),
        ({"language": "python"}, "code"),
        ({"code": "1", "language": "cobol"}, "cobol"),
        ({"code": 1, "language": "python"}, "$.code"),
        ({"code": "1", "language": "python", "run_timeout": -1}, "$.run_timeout"),
        ({"code": "1", "language": "python", "memory_limit_MB": "1G"}, "memory_limit_MB"),
        ({"code": "1", "language": "python", "files": {"a": "*"}}, "base64"),
        ({"code": "1", "language": "python", "files": {"../a": ""}}, "a"),
        ({"code": "1", "language": "python", "fetch_files": "a"}, "$.fetch_files"),
        ({"code": "1", "language": "python", "fetch_files": ["\udcff"]}, "$.fetch_files["),
        ({"code": "1", "language": "python", "more": 1}, "unknown field `more`"),
        pytest.param(b'{"code":[' + b"[]," * 300_000 + b"0]}", "more than 320000", id="countless values"),
    ],
)
def test_a_wrong_request_is_422_with_a_reason(service: Service, body: object, detail: str) -> None:
    status, _, answer = service.ask("/run_code", body)
    assert status == 422
    assert detail in answer["detail"]  # type: ignore[index]


def test_nothing_but_health_and_ping_answers_without_the_token(service: Service) -> None:
    for token in (None, "wrong"):
        assert service.ask("/run_code", {"code": "1", "language": "python"}, token=token)[0] == 401
        assert service.ask("/metrics", token=token)[0] == 401
        assert service.ask("/health", token=token)[2] == {"status": "ok"}
        assert service.ask("/v1/ping", token=token)[2] == "pong"


def test_unknown_paths_and_methods_are_told(service: Service) -> None:
    assert service.ask("/other")[0] == 404
    status, headers, _ = service.ask("/run_code", method="GET")
    assert (status, headers["allow"]) == (405, "POST")


def test_a_connection_of_a_client_with_the_token_serves_several_requests(service: Service) -> None:
    for token, kept in ((TOKEN, True), ("wrong", False)):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        connection.connect()
        first = connection.sock
        for _ in range(3):
            connection.request("GET", "/health", headers={"Authorization": f"Bearer {token}"})
            assert json.loads(connection.getresponse().read()) == {"status": "ok"}
        assert (connection.sock is first) is kept
        connection.close()


def test_a_next_request_that_does_not_come_whole_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S", 0.2)
    asked = f"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with Service() as made, socket.create_connection(("127.0.0.1", made.port), timeout=30) as raw:
        raw.sendall(asked + b"G")
        with contextlib.suppress(ConnectionResetError):
            assert b"".join(iter(lambda: raw.recv(4096), b"")).count(b"HTTP/1.1") == 1


def head(service: Service, token: str, size: int) -> socket.socket:
    """Send the head of a request whose body does not come."""
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    lines = ["POST /run_code HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", f"Content-Length: {size}"]
    raw.sendall("\r\n".join([*lines, "", ""]).encode())
    return raw


@pytest.mark.parametrize(("token", "size", "status"), [("wrong", 60 << 20, 401), (TOKEN, MAX_BODY + 1, 413)])
def test_who_may_not_run_is_told_before_the_body_is_read(service: Service, token: str, size: int, status: int) -> None:
    with head(service, token, size) as raw:
        assert raw.recv(12) == f"HTTP/1.1 {status}".encode()


def test_bodies_together_are_bounded(service: Service) -> None:
    kept = [head(service, TOKEN, MAX_BODY) for _ in range(MAX_HELD // MAX_BODY)]
    try:
        for line in kept:
            line.sendall(b"x" * 100)
        # Their heads may not have been read yet.
        statuses = (service.ask("/run_code", {"code": "1", "language": "python"}) for _ in range(1000))
        status, headers, _ = next(answer for answer in statuses if answer[0] != 200)
        assert (status, headers["retry-after"]) == (429, "1")
    finally:
        for line in kept:
            line.close()
    assert any(service.ask("/run_code", {"code": "1", "language": "python"})[0] == 200 for _ in range(1000))


def test_a_client_that_goes_away_gives_its_place_to_others() -> None:
    body = json.dumps({"code": "import time; time.sleep(600)", "language": "python", "run_timeout": 900}).encode()
    with Service(workers=1, waiting=1) as made:
        gone = [head(made, TOKEN, len(body)) for _ in range(2)]
        for line in gone:
            line.sendall(body)
        while made.queue.taken < 2:
            made.thread.join(0.01)
        for line in gone:
            line.close()
        while made.queue.taken:
            made.thread.join(0.01)
        assert made.run(code="print(1)", language="python")["status"] == "Success"


_INNER = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
_TWO_WAYS = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(_INNER))


@pytest.mark.parametrize(
    "said",
    [b"\x16\x03\x01 no http\r\n\r\n" * 10, b"POST /run_code HTTP/1.1\r\nHost: localhost\r\n" + _TWO_WAYS + _INNER],
    ids=["no http", "read differently by two servers"],
)
def test_what_is_no_honest_http_is_refused_once_and_hurts_nobody(service: Service, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as raw:
        raw.sendall(said)
        answer = b"".join(iter(lambda: raw.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1
    assert service.ask("/health")[0] == 200


def test_connections_that_send_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_WAITING", 4)
    with Service() as made, contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=30))
        assert made.ask("/health")[0] == 200
        assert made.run(code="print(1)", language="python")["status"] == "Success"


def test_a_client_that_does_not_take_its_answer_does_not_hold_up_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_S", 0.2)
    body = json.dumps({"code": LARGE_FILE, "language": "python", "fetch_files": ["a"]}).encode()
    with socket.socket() as raw, Service() as made:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(30)
        raw.connect(("127.0.0.1", made.port))
        head = f"POST /run_code HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body)
        assert raw.recv(1) == b"H"


def test_an_answer_has_the_place_of_its_program_until_the_client_has_taken_it() -> None:
    body = json.dumps({"code": LARGE_FILE, "language": "python", "fetch_files": ["a"]}).encode()
    head = f"POST /run_code HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    with Service(workers=1, waiting=0) as made:
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.settimeout(30)
            raw.connect(("127.0.0.1", made.port))
            raw.sendall(head.encode() + body)
            assert raw.recv(1) == b"H"
            assert made.ask("/run_code", {"code": "1", "language": "python"})[0] == 429
        while made.queue.taken:
            made.thread.join(0.01)
        assert made.run(code="print(1)", language="python")["status"] == "Success"


def test_a_client_that_goes_away_after_more_bytes_ends_its_program() -> None:
    body = json.dumps({"code": "import time; time.sleep(60)", "language": "python", "run_timeout": 60}).encode()
    with Service(workers=1) as made:
        with head(made, TOKEN, len(body)) as raw:
            raw.sendall(body)
            while not made.queue.taken:
                made.thread.join(0.01)
            raw.sendall(b"GET ")
        assert made.run(code="print(1)", language="python")["status"] == "Success"


@pytest.mark.slow
def test_a_full_queue_is_429_and_a_drain_finishes_what_was_taken() -> None:
    made = Service(workers=1, waiting=0)
    answers: list[dict[str, object]] = []
    sleeper = threading.Thread(
        target=lambda: answers.append(made.run(code="import time; time.sleep(3); print(1)", language="python"))
    )
    sleeper.start()
    try:
        while made.queue.taken == 0:
            sleeper.join(0.01)
        status, headers, _ = made.ask("/run_code", {"code": "1", "language": "python"})
        assert status == 429
        assert int(headers["retry-after"]) >= 1
    finally:
        made.stop()
        sleeper.join(60)
    assert answers[0]["status"] == "Success"
    with pytest.raises(ConnectionError):
        made.ask("/health")


@pytest.mark.slow
def test_under_load_everything_is_answered_once_and_who_does_not_fit_comes_back() -> None:
    made = Service(workers=2, waiting=2)
    together = threading.Barrier(CLIENTS)
    answers: list[object] = []
    refusals: list[int] = []

    def client(number: int) -> None:
        body = {"code": f"import time; time.sleep(0.2); print({number})", "language": "python"}
        together.wait(60)
        for _ in range(100):
            status, headers, answer = made.ask("/run_code", body)
            if status == 200:
                answers.append(answer["run_result"]["stdout"])  # type: ignore[index]
                return
            assert (status, int(headers["retry-after"]) >= 1) == (429, True)
            refusals.append(number)
            threading.Event().wait(min(5, int(headers["retry-after"])))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    try:
        for each in clients:
            each.start()
        for each in clients:
            each.join(100)
        text = str(made.ask("/metrics")[2])
    finally:
        made.stop()
    assert sorted(map(str, answers)) == sorted(f"{number}\n" for number in range(CLIENTS))
    assert refusals
    assert f'sandbox_runs_total{{status="ok"}} {CLIENTS}' in text and f"sandbox_run_seconds_count {CLIENTS}" in text
    assert f"sandbox_refused_total {len(refusals)}" in text
    assert "sandbox_running 0" in text and "sandbox_waiting 0" in text
