"""The page's web application, for this machine and with the token in its address only.

    GET  /TOKEN/                  the page; page.css and page.js beside it
    GET  /TOKEN/api/summary       progress, agreement, the decision that undo takes back, and the
                                  choices of each filter
    GET  /TOKEN/api/queue?…       rows of the images that pass the filters, see
                                  `farther.review.session.Filters`
    GET  /TOKEN/api/image/ROW     labels, detections and decisions of an image
    GET  /TOKEN/picture/ROW       the image itself
    POST /TOKEN/api/decide        {"row", "decision", "id_class", "note"}
    POST /TOKEN/api/undo          {"time"}

Other pages in the same browser can neither read nor write here: they do not know the token,
requests that name another host (DNS rebinding) or come from another origin are refused, and a form
cannot post JSON.
"""

from __future__ import annotations

import hmac
import io
import secrets
import socket
from collections.abc import Callable
from typing import Any, TypeVar

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

from farther.errors import DataError, FartherError, ParameterError
from farther.images.orientation import UPRIGHT, orientation_of, upright
from farther.images.read import open_image
from farther.naming.registry import build
from farther.review.session import Filters, Session
from farther.tables.documents import parse_json
from farther.tables.schema import Schema, check

Content = TypeVar("Content", bound=Schema)

HOST = "127.0.0.1"

#: Seconds that an idle connection stays open.
TIMEOUT = 60

#: Image formats that browsers show; others are converted to PNG.
SHOWN = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "GIF": "image/gif",
    "WEBP": "image/webp",
    "BMP": "image/bmp",
}

SECURITY = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class DecideRequest(Schema):
    """A decision on the image of a row; see `farther.curation.Decision`."""

    row: int
    decision: str
    id_class: str = ""
    note: str = ""


class UndoRequest(Schema):
    """Takes back the decision of this time."""

    time: str


class ReviewServer:
    """Serves one reviewer's session on 127.0.0.1.

    Args:
        session: The session.
        port: The port; 0 for any that is free.

    Attributes:
        token: Secret that every request must have in its path.
        address: Address of the page; contains the token.

    Raises:
        ParameterError: the port is taken or not allowed.
    """

    def __init__(self, session: Session, port: int = 0):
        self.session = session
        self.token = secrets.token_urlsafe(24)
        try:
            self._socket = socket.create_server((HOST, port), backlog=64)
        except (OSError, OverflowError) as error:
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
    """Refuses requests without the token, to another host or from another origin.

    It adds the security headers.

    Args:
        app: Gets the other requests, with paths that start after the token.
        token: The token.
        host: Host and port.
    """

    def __init__(self, app: ASGIApp, token: str, host: str):
        self.app = app
        self.token = token
        self.host = host

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
        return JSONResponse(session.image(request.path_params["row"]))

    def picture(request: Request) -> Response:
        return _picture(session, request.path_params["row"])

    def decide(content: DecideRequest) -> int:
        session.decide(content.row, content.decision, content.id_class, content.note)
        return content.row

    def undo(content: UndoRequest) -> int:
        return session.undo(content.time)

    def posted(type_: type[Content], act: Callable[[Content], int]) -> Callable[[Request], Any]:
        """Endpoint that acts on the JSON of a request.

        Args:
            type_: Type of the request's content.
            act: Acts on it; returns the row of the image, which is answered with the summary.
        """

        def answer(content: Content) -> dict[str, Any]:
            row = act(content)
            return {"image": session.image(row), "summary": session.summary()}

        async def endpoint(request: Request) -> Response:
            media_type, _, _ = request.headers.get("content-type", "").partition(";")
            if media_type.strip().lower() != "application/json":
                raise HTTPException(415, "expected application/json")
            try:
                content = check(type_, parse_json(await request.body()), "request")
            except DataError as error:
                raise HTTPException(400, str(error)) from None
            return JSONResponse(await run_in_threadpool(answer, content))

        return endpoint

    routes = [
        Route("/api/summary", summary),
        Route("/api/queue", queue),
        Route("/api/image/{row:int}", image),
        Route("/picture/{row:int}", picture),
        Route("/api/decide", posted(DecideRequest, decide), methods=["POST"]),
        Route("/api/undo", posted(UndoRequest, undo), methods=["POST"]),
        Mount("/", StaticFiles(packages=[("farther.review", "page")], html=True)),
    ]
    handlers: dict[Any, Any] = {
        ParameterError: _refused,
        FartherError: _refused,
        HTTPException: _refused,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    status = 400 if isinstance(error, ParameterError) else 500
    return JSONResponse({"error": str(error)}, status)


def _picture(session: Session, row: int) -> Response:
    """The image file as it is on disk, or as PNG if browsers do not show its format."""
    file = session.catalogue.file(row)
    try:
        content = file.read_bytes()
        with open_image(io.BytesIO(content)) as image:
            media_type = _media_type(image)
            if media_type is not None:
                return Response(content, media_type=media_type)
            converted = io.BytesIO()
            upright(image).convert("RGB").save(converted, "PNG")
    except FileNotFoundError:
        raise HTTPException(404, "the image file is not on this machine") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"the image cannot be read: {error}", file=file) from None
    return Response(converted.getvalue(), media_type="image/png")


def _media_type(image: Image.Image) -> str | None:
    """Media type of an image file that browsers show; None for others."""
    if image.format == "WEBP" and orientation_of(image) != UPRIGHT:
        return None  # Chromium does not turn WebP.
    return SHOWN.get(image.format or "")
