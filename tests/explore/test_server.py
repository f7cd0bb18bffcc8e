"""The local server: who may ask, what it refuses, and that it goes on."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from flax_attn.errors import UsageError
from flax_attn.explore import server as module
from flax_attn.explore.server import LARGEST_BODY, TOKEN, free_port, open_explorer, with_token
from tests.faults import ROOT

PAGE = "<head></head><p>a page"


def answer(request):
    """Says how the request failed, or what it was."""
    if request.get("how") == "usage":
        raise UsageError("expected another input\nof two lines")
    if request.get("how") == "error":
        raise RuntimeError("a layer broke")
    time.sleep(request.get("wait", 0))
    return {"settings": request.get("settings")}


@pytest.fixture
def server():
    with open_explorer(0, PAGE, [answer]) as opened:
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def ask(server, body=b'{"run": 0}', method="POST", path="/ask", **headers):
    """The status and the reply of one request; headers of None are left out."""
    own = {TOKEN: server.token, "Host": f"127.0.0.1:{server.server_port}"}
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    for name, value in ({"Content-Length": str(len(body))} | own).items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    is_json = response.headers["Content-Type"] == "application/json"
    return status, json.loads(text) if is_json and text else text


def test_the_page_and_its_question_are_answered(server):
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, b"", "GET", "/") == (200, with_token(PAGE, server.token))
    assert ask(server, b"", "HEAD", "/") == (200, "")
    body = json.dumps({"run": 0, "settings": {"causal": True}}).encode()
    assert ask(server, body) == (200, {"settings": {"causal": True}})


def test_another_host_a_missing_token_and_other_paths_are_refused(server):
    port = server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", None):
        assert ask(server, Host=host)[0] == 403
        assert ask(server, b"", "GET", "/", Host=host)[0] == 403
    assert ask(server, Host=f"localhost:{port}")[0] == 200
    for token in (None, "", "wrong", server.token[:-1], "é"):
        headers = {TOKEN.replace("-", "_"): None if token is None else token}
        status, reply = ask(server, **headers)
        assert (status, list(reply)) == (403, ["error"])
    for path in ("/../etc/passwd", "/page.css", "/ask", "/?x=1"):
        assert ask(server, b"", "GET", path)[0] == 404
    assert ask(server, path="/")[0] == 404
    assert ask(server, method="PUT")[0] == 501


def test_the_body_of_a_request_that_is_refused_is_not_another_request(server):
    host = f"Host: 127.0.0.1:{server.server_port}\r\n"
    body = f"GET / HTTP/1.1\r\n{host}\r\n"
    request = f"POST /ask HTTP/1.1\r\n{host}Content-Length: {len(body)}\r\n\r\n{body}"
    with socket.create_connection(server.server_address, 20) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        reply = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert reply.startswith(b"HTTP/1.1 403 ")
    assert reply.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in reply


def test_bodies_are_limited_and_bad_ones_are_one_line(server):
    status, reply = ask(server, Content_Length=str(LARGEST_BODY + 1))
    assert status == 413
    assert "1,000,000 bytes" in reply["error"]
    assert ask(server, Content_Length="9" * 400)[0] == 413
    for length in (None, "-1", "ten", "\N{FULLWIDTH DIGIT ONE}"):
        encoded = length and length.encode()
        assert ask(server, Content_Length=encoded)[0] == 411
    nested = b"[" * 100_000
    for body in (b"", b"{", b"\xff", nested, b"[1]", b"{}", b'{"run": 1}', b'{"run": "0"}'):
        status, reply = ask(server, body)
        assert status == 400, body
        assert "\n" not in reply["error"]


def test_errors_of_a_request_are_one_line_and_the_server_goes_on(server):
    assert ask(server, b'{"run": 0, "how": "usage"}') == (
        200,
        {"error": r"expected another input\nof two lines"},
    )
    status, reply = ask(server, b'{"run": 0, "how": "error"}')
    assert status == 500
    assert "a layer broke" in reply["error"]
    with socket.create_connection(("127.0.0.1", server.server_port)) as half:
        half.sendall(b"POST /ask HTTP/1.1\r\nHost: ")  # and is gone
    assert ask(server)[0] == 200


def test_one_request_does_not_hold_up_another(server):
    body = json.dumps({"run": 0, "wait": 2}).encode()
    slow = threading.Thread(target=ask, args=(server, body))
    slow.start()
    start = time.monotonic()
    assert ask(server)[0] == 200
    assert time.monotonic() - start < 1.8
    slow.join()


SLOW = """
import time
from flax_attn.explore.server import open_explorer

def answer(request):
    print("asked", flush=True)
    time.sleep(1)
    print("answered", flush=True)
    return {}

with open_explorer(0, "", [answer]) as server:
    print(server.server_port, server.token, flush=True)
    server.serve_forever()
"""


def test_ctrl_c_waits_for_the_answer_that_is_computed():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", SLOW], cwd=ROOT, **pipes) as process:
        port, token = process.stdout.readline().split()
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
        with contextlib.closing(connection):
            connection.request("POST", "/ask", b'{"run": 0}', {TOKEN: token})
            assert process.stdout.readline() == "asked\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=20)[0] == "answered\n"


def test_200_connections_at_a_moment_are_answered():
    with open_explorer(0, "", [answer]) as server, contextlib.ExitStack() as stack:
        address = "127.0.0.1", server.server_port
        # while the server is busy, the system holds them
        waiting = [stack.enter_context(socket.create_connection(address, 4)) for _ in range(125)]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        waiting += [stack.enter_context(socket.create_connection(address, 20)) for _ in range(75)]
        request = f"HEAD / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
        for connection in waiting:
            connection.sendall(request)
        replies = [connection.recv(15) for connection in waiting]
        server.shutdown()
        thread.join()
    assert replies == [b"HTTP/1.1 200 OK"] * 200


def test_a_port_in_use_names_a_free_one_and_is_left_out_otherwise(server, monkeypatch):
    port = server.server_port
    with pytest.raises(UsageError) as error:
        open_explorer(port, "", [answer])
    words = str(error.value).split()
    assert "\n" not in str(error.value)
    assert int(words[words.index("is") - 1]) == free_port(port + 1)
    monkeypatch.setattr(module, "FIRST_PORT", port)
    monkeypatch.setattr(module, "free_port", lambda first=port: free_port(first))
    with open_explorer(None, "", [answer]) as other:
        assert other.server_port != port
