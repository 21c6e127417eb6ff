"""The page's web application: reachable from this machine only, and only with the token in its address.

    GET  /TOKEN/                  the page; page.css and page.js beside it
    GET  /TOKEN/api/summary       progress, agreement, what undo would take back, the choices of each filter
    GET  /TOKEN/api/queue?…       rows of the images that pass the filters, see `farther.review.session.Filters`
    GET  /TOKEN/api/image/ROW     labels, detections and decisions of an image
    GET  /TOKEN/picture/ROW       the image itself
    POST /TOKEN/api/decide        {"row", "decision", "id_class", "note"}
    POST /TOKEN/api/undo          {"time"}

Other pages in the same browser can neither read nor write here: they do not know the token, requests that name another
host (DNS rebinding) or come from another origin are refused, and a form cannot post JSON.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import secrets
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farther.errors import DataError, FartherError, ParameterError, shorten
from farther.images.read import open_image
from farther.registry import build
from farther.review.session import Filters, Session
from farther.tables.documents import parse_json

HOST = "127.0.0.1"

#: Largest body of a request in bytes.
MAX_BODY = 65_536

#: Seconds that a body may take to arrive, and that an idle connection stays open.
TIMEOUT = 60

#: Image formats that browsers show; others are converted to PNG.
SHOWN = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WEBP": "image/webp", "BMP": "image/bmp"}

SECURITY = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ReviewServer:
    """Serves one reviewer's session on 127.0.0.1; `address` is that of the page and contains the token.

    Raises:
        ParameterError: the port is taken or not allowed.
    """

    def __init__(self, session: Session, port: int = 0):
        self.session, self.token = session, secrets.token_urlsafe(24)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen(64)
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise ParameterError(f"port {port} of {HOST} cannot be used: {error}") from None
        self.port = self._socket.getsockname()[1]
        self.address = f"http://{HOST}:{self.port}/{self.token}/"
        config = uvicorn.Config(
            Guard(application(session), self.token, f"{HOST}:{self.port}"),
            http="h11",
            ws="none",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            access_log=False,  # it would write the token into the terminal's history
            log_level="warning",
            timeout_keep_alive=TIMEOUT,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)

    def __enter__(self) -> ReviewServer:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def run(self) -> None:
        """Answers requests until `stop` is called or the process is interrupted."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ends `run`, from any thread."""
        self._server.should_exit = True


class Guard:
    """Refuses requests without the token, to another host or from another origin; adds the security headers.

    `app` gets the other requests, with paths that start after the token.
    """

    def __init__(self, app: ASGIApp, token: str, host: str):
        self.app, self.token, self.host = app, token, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request itself or passes it on."""

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY)
            await send(message)

        refusal = self._refusal(scope)
        if refusal:
            await JSONResponse({"error": refusal}, 403)(scope, receive, secured)
            return
        path = "/" + scope["path"].removeprefix("/").partition("/")[2]
        await self.app({**scope, "path": path, "raw_path": path.encode()}, receive, secured)

    def _refusal(self, scope: Scope) -> str:
        """Reason to refuse the request, "" for none."""
        headers = Headers(scope=scope)
        if headers.getlist("host") != [self.host]:
            return "the request names another host"
        if headers.getlist("origin") not in ([], [f"http://{self.host}"]):
            return "the request comes from another page"
        token, slash, _ = scope["path"].removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.token.encode()):
            return "open the address that the terminal shows: the token has changed"
        return ""


def application(session: Session) -> Starlette:
    """The page and its interface, without any check of who asks."""

    def summary(request: Request) -> Response:
        choices = {"filters": session.filters(), "id_classes": list(session.catalogue.id_classes)}
        return JSONResponse({**session.summary(), **choices})

    def queue(request: Request) -> Response:
        return JSONResponse(session.queue(build(Filters, "filters", dict(request.query_params))))

    def image(request: Request) -> Response:
        return JSONResponse(session.image(_row(request)))

    def picture(request: Request) -> Response:
        return _picture(session, _row(request))

    def decide(body: dict[str, Any]) -> int:
        row = _field(body, "row", int)
        session.decide(row, *(_field(body, name, str) for name in ("decision", "id_class", "note")))
        return row

    def undo(body: dict[str, Any]) -> int:
        return session.undo(_field(body, "time", str))

    def posted(act: Callable[[dict[str, Any]], int]) -> Callable[[Request], Any]:
        """Endpoint that acts on the JSON of a request, and answers with its image and the summary."""

        def answer(body: dict[str, Any]) -> dict[str, Any]:
            row = act(body)
            return {"image": session.image(row), "summary": session.summary()}

        async def endpoint(request: Request) -> Response:
            return JSONResponse(await run_in_threadpool(answer, await _body(request)))

        return endpoint

    routes = [
        Route("/api/summary", summary),
        Route("/api/queue", queue),
        Route("/api/image/{row}", image),
        Route("/picture/{row}", picture),
        Route("/api/decide", posted(decide), methods=["POST"]),
        Route("/api/undo", posted(undo), methods=["POST"]),
        Mount("/", StaticFiles(packages=[("farther.review", "page")], html=True)),
    ]
    handlers: dict[Any, Any] = {ParameterError: _refused, FartherError: _refused, HTTPException: _refused}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, ParameterError) else 500)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request, whose size is checked before it is read."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected application/json")
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY:
        raise HTTPException(413, f"expected at most {MAX_BODY} bytes")
    try:
        async with asyncio.timeout(TIMEOUT):
            body = parse_json(await request.body())
    except TimeoutError:
        raise HTTPException(408, "the request did not arrive in time") from None
    except DataError:
        raise HTTPException(400, "expected JSON") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "expected a JSON object")
    return body


def _picture(session: Session, row: int) -> Response:
    """The image file as it is on disk, or as PNG if browsers do not show its format."""
    file = session.catalogue.file(row)
    try:
        content = file.read_bytes()
        with open_image(io.BytesIO(content)) as image:
            if image.format in SHOWN:
                return Response(content, media_type=SHOWN[image.format])
            converted = io.BytesIO()
            image.convert("RGB").save(converted, "PNG")
    except FileNotFoundError:
        raise HTTPException(404, "the image file is not on this machine") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"the image cannot be read: {error}", file=file) from None
    return Response(converted.getvalue(), media_type="image/png")


def _row(request: Request) -> int:
    text = request.path_params["row"]
    if not text.isdecimal() or len(text) > 12:
        raise HTTPException(404, "expected the number of an image")
    return int(text)


def _field(body: dict[str, Any], name: str, kind: type) -> Any:
    value = body.get(name, "" if kind is str else None)
    if type(value) is not kind:
        raise ParameterError(f"field {name!r}: expected {kind.__name__}, found {shorten(value)}")
    return value
