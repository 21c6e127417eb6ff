"""The page's HTTP server: this machine only, and only for whoever has the address with its token.

    GET  /TOKEN/                  the page; page.css and page.js beside it
    GET  /TOKEN/api/summary       progress, agreement, what undo would take back, what can be filtered for
    GET  /TOKEN/api/queue?…       rows of the images that pass the filters, see `farther.tools.review.session.Filters`
    GET  /TOKEN/api/image/ROW     all about an image
    GET  /TOKEN/picture/ROW       the image itself
    POST /TOKEN/api/decide        {"row", "decision", "id_class", "note"}
    POST /TOKEN/api/undo          {"time"}

Other pages in the same browser can neither read nor write here: they do not know the token; requests that name another
host or come from another origin are refused; and a form cannot post the JSON that is asked for.
"""

from __future__ import annotations

import hmac
import io
import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from PIL import Image, UnidentifiedImageError

from farther.errors import DataError, FartherError, ParameterError
from farther.registry import build
from farther.tools.review.session import Filters, Session

HOST = "127.0.0.1"

#: Longest body of a request.
MAX_BODY = 65_536

#: Seconds after which a connection that says nothing is closed.
PATIENCE = 60

PAGES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
}

#: Formats that browsers show; others are converted.
SHOWN = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WEBP": "image/webp", "BMP": "image/bmp"}

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ReviewServer(ThreadingHTTPServer):
    """Serves one reviewer's session.

    Args:
        session: Images and decisions.
        port: Of 127.0.0.1; 0 for any that is free.

    Attributes:
        address: What to open in a browser; it holds the token.

    Raises:
        ParameterError: the port is taken or not allowed.
    """

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0):
        self.session = session
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ParameterError(f"port {port} of {HOST} cannot be used: {error}") from None
        self.origin = f"http://{HOST}:{self.server_port}"
        self.address = f"{self.origin}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that went away in the middle of an answer."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _RefusedError(Exception):
    """A request that gets no answer but this one."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "farther"
    sys_version = ""
    timeout = PATIENCE
    wbufsize = -1  # head and content in one packet: in two, the second waits 40 ms for the first to be acknowledged

    def do_GET(self) -> None:
        """Answers with a page, a picture or JSON."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Takes a decision."""
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the token would stand in the terminal's history a thousand times."""

    @property
    def _session(self) -> Session:
        return cast(ReviewServer, self.server).session

    def _answer(self, respond: Any) -> None:
        try:
            content, kind = respond(self._path())
            status = HTTPStatus.OK
        except _RefusedError as error:
            status, content, kind = error.status, *_json({"error": str(error)})
            self.close_connection = True  # a body may be unread
        except ParameterError as error:
            status, content, kind = HTTPStatus.BAD_REQUEST, *_json({"error": str(error)})
        except FartherError as error:
            status, content, kind = HTTPStatus.INTERNAL_SERVER_ERROR, *_json({"error": str(error)})
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _path(self) -> str:
        """What is asked for, after the token."""
        server = cast(ReviewServer, self.server)
        if self.headers.get("Host") != f"{HOST}:{server.server_port}":
            raise _RefusedError(HTTPStatus.FORBIDDEN, "this is another host")
        if self.headers.get("Origin", server.origin) != server.origin:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "this comes from another page")
        token, slash, path = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), server.token.encode()):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "open the address that the terminal shows: its token has changed")
        return path

    def _get(self, path: str) -> tuple[bytes, str]:
        if path in PAGES:
            name, kind = PAGES[path]
            return files("farther.tools.review").joinpath("page", name).read_bytes(), kind
        if path == "api/summary":
            filters = {"filters": self._session.filters(), "id_classes": list(self._session.catalogue.id_classes)}
            return _json({**self._session.summary(), **filters})
        if path == "api/queue":
            asked = dict(parse_qsl(urlsplit(self.path).query))
            return _json(self._session.queue(build(Filters, "filters", asked)))
        if path.startswith("api/image/"):
            return _json(self._session.image(_row(path.removeprefix("api/image/"))))
        if path.startswith("picture/"):
            return self._picture(_row(path.removeprefix("picture/")))
        raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")

    def _post(self, path: str) -> tuple[bytes, str]:
        body = self._body()
        if path == "api/decide":
            row = _field(body, "row", int)
            words = (_field(body, name, str) for name in ("decision", "id_class", "note"))
            self._session.decide(row, *words)
        elif path == "api/undo":
            row = self._session.undo(_field(body, "time", str))
        else:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        return _json({"image": self._session.image(row), "summary": self._session.summary()})

    def _body(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MAX_BODY} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected JSON") from None
        if not isinstance(body, dict):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected a JSON object")
        return body

    def _picture(self, row: int) -> tuple[bytes, str]:
        file = self._session.catalogue.file(row)
        try:
            content = file.read_bytes()
            with Image.open(io.BytesIO(content)) as image:
                if image.format in SHOWN:
                    return content, SHOWN[image.format]
                converted = io.BytesIO()
                image.convert("RGB").save(converted, "PNG")
        except FileNotFoundError:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "the image file is not on this machine") from None
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
            raise DataError(f"the image cannot be read: {error}", file=file) from None
        return converted.getvalue(), "image/png"


def _json(value: Any) -> tuple[bytes, str]:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(), "application/json; charset=utf-8"


def _row(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise _RefusedError(HTTPStatus.NOT_FOUND, "expected the number of an image")
    return int(text)


def _field(body: dict[str, Any], name: str, kind: type) -> Any:
    value = body.get(name, "" if kind is str else None)
    if type(value) is not kind:
        raise ParameterError(f"field {name!r}: expected {kind.__name__}, found {value!r}")
    return value
