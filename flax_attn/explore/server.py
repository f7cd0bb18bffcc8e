"""A local page over the standard library's server, with a run behind it.

It listens on 127.0.0.1 alone. A web site that the user visits meanwhile can neither read the page
(its `Host` is another) nor ask (it does not know the token). Nothing is kept between two requests.
"""

import contextlib
import hmac
import html
import json
import secrets
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from flax_attn.errors import UsageError, escaped, one_line
from flax_attn.types import Json, JsonObject

ADDRESS = "127.0.0.1"
FIRST_PORT = 8600
PORTS_TRIED = 100
LARGEST_BODY = 1_000_000  # bytes of a request
PATIENCE = 60  # seconds that a connection may be silent
TOKEN = "X-Flax-Attn-Token"

Answer = Callable[[Json], JsonObject]
State = Callable[[], JsonObject]


class Explorer(ThreadingHTTPServer):
    """Serves one page, and answers what the page asks."""

    request_queue_size = 128  # connections that wait; browsers open many at a moment
    daemon_threads = True  # a browser keeps connections open, which must not hold up the end

    def __init__(self, port: int, page: str, answers: Sequence[Answer], state: State | None):
        """Opens the port; 0 for any. Arguments are those of `open_explorer`."""
        # XLA crashes if the program ends inside it, so these threads are waited for
        self.pool = ThreadPoolExecutor()
        super().__init__((ADDRESS, port), Handler)
        self.answers, self.state = answers, state
        self.token = secrets.token_urlsafe(32)
        self.show(page)
        names = (ADDRESS, "localhost")
        self.hosts = {f"{name}:{self.server_port}" for name in names}

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def show(self, page: str) -> None:
        """Serves a page from now on."""
        self.page = with_token(page, self.token).encode()

    def server_close(self) -> None:
        """Closes the port, and waits for the answers that are being computed."""
        super().server_close()
        self.pool.shutdown(cancel_futures=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a page that was closed while it was answered."""

    def answer(self, body: bytes) -> tuple[HTTPStatus, JsonObject]:
        """Returns the reply to the body of a request. An error is one line in it."""
        try:
            request = json.loads(body)
            number = request["run"] if isinstance(request, dict) else None
        except (ValueError, KeyError, RecursionError) as error:
            line = f"expected a request as JSON, with its run ({one_line(error)[:80]})"
            return HTTPStatus.BAD_REQUEST, {"error": line}
        if type(number) is not int or not 0 <= number < len(self.answers):
            last = len(self.answers) - 1
            return HTTPStatus.BAD_REQUEST, {"error": f"expected a run from 0 to {last}"}
        try:
            return HTTPStatus.OK, self.pool.submit(self.answers[number], request).result()
        except UsageError as error:
            return HTTPStatus.OK, {"error": escaped(one_line(error))}
        except Exception as error:  # the server goes on with the next request
            line = f"the model gave no answer ({type(error).__name__}: {one_line(error)[:200]})"
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": escaped(line)}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"  # one connection for all updates of a drag
    disable_nagle_algorithm = True
    wbufsize = -1  # header and body leave together
    timeout = PATIENCE
    server: Explorer
    server_version = "flax-attn"
    sys_version = ""

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self.refuse(HTTPStatus.FORBIDDEN, f"expected the host {ADDRESS}")
        elif self.path == "/state" and self.server.state is not None:
            self.send_json(HTTPStatus.OK, self.server.state())
        elif self.path != "/":
            self.refuse(HTTPStatus.NOT_FOUND, "nothing is here; open /")
        else:
            self.send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        token = self.headers.get(TOKEN, "").encode()
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Host") not in self.server.hosts:
            self.refuse(HTTPStatus.FORBIDDEN, f"expected the host {ADDRESS}")
        elif not hmac.compare_digest(token, self.server.token.encode()):
            self.refuse(HTTPStatus.FORBIDDEN, "expected the token of this page; load it again")
        elif self.path != "/ask":
            self.refuse(HTTPStatus.NOT_FOUND, "nothing is here; ask /ask")
        elif not (length.isascii() and length.isdigit()):
            self.refuse(HTTPStatus.LENGTH_REQUIRED, "expected the length of the request")
        elif len(length) > 12 or int(length) > LARGEST_BODY:
            line = f"expected at most {LARGEST_BODY:,} bytes, got more; shorten the input"
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, line)
        else:
            self.send_json(*self.server.answer(self.rfile.read(int(length))))

    def refuse(self, status: HTTPStatus, line: str) -> None:
        """Replies with a one-line error, and closes the connection, whose body is left unread."""
        self.close_connection = True
        self.send_json(status, {"error": line})

    def send_json(self, status: HTTPStatus, reply: JsonObject) -> None:
        self.send(status, "application/json", json.dumps(reply, separators=(",", ":")).encode())

    def send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing: the terminal shows the address alone."""


def free_port(first: int = FIRST_PORT) -> int:
    """Returns the first free port from one on; 0, which is any, where many are in use."""
    for port in range(first, min(first + PORTS_TRIED, 65_536)):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((ADDRESS, port))
            return port
    return 0


def check_free(port: int | None) -> None:
    """Raises a UsageError for a port that is in use, or may not be used."""
    if port is not None:
        open_explorer(port, "", []).server_close()


def open_explorer(
    port: int | None, page: str, answers: Sequence[Answer], state: State | None = None
) -> Explorer:
    """Returns a server of a page on a port; None for the first free one.

    Args:
        answers: of each run.
        state: returns the progress of a training; None where none is followed.

    Raises:
        UsageError: the port is in use, or may not be used.
    """
    try:
        return Explorer(free_port() if port is None else port, page, answers, state)
    except (OSError, OverflowError) as error:
        free = free_port(FIRST_PORT if port is None else port + 1)
        raise UsageError(
            f"cannot listen on {ADDRESS}, port {port} ({one_line(error)}); --port {free} is free"
        ) from error


def with_token(page: str, token: str) -> str:
    """Adds to the page the token that its questions carry, and an empty icon."""
    head = f'<meta name="flax-attn-token" content="{html.escape(token)}">'
    return page.replace("<head>", f'<head>{head}<link rel="icon" href="data:,">', 1)
