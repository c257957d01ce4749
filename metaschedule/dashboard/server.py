"""The page's server: its own files, the views as JSON, and a stream that says when there is news.

It only reads, and answers only whom it should: requests whose `Host` is the address it was bound to (a page
of another site that resolves to 127.0.0.1 has another), from its own pages (`Origin`), and, bound to anything
but loopback, with the token of the address that it printed.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import ipaddress
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..database import DatabaseError
from .page import FILES, plotly_script, read_file
from .source import Source
from .views import finite, view

PERIOD = 0.3  # seconds between looks for news
SILENCE = 15.0  # seconds after which an idle stream says that it is alive
COMPRESSION = 4  # 9, the default, takes twice as long and saves 4%
COOKIE = "metaschedule-token"
HEADERS = {
    # Plotly sets styles of its marks by attributes and adds a style sheet, hence 'unsafe-inline' of styles.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_app(source: Source, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
    """`token` is asked for in the address, then kept in a cookie; None: whoever reaches the port may look."""
    return Starlette(
        routes=[
            Route("/", functools.partial(serve_file, "index.html")),
            Route("/plotly.js", serve_plotly),
            *[Route(f"/{name}", functools.partial(serve_file, name)) for name in FILES],
            Route("/api/{path:path}", functools.partial(serve_view, source)),
            Route("/events", functools.partial(serve_events, source)),
        ],
        middleware=[
            Middleware(Guard, host=host, token=token),
            Middleware(GZipMiddleware, minimum_size=2000, compresslevel=COMPRESSION),
        ],
    )


class Guard:
    """Refuses whoever should not be answered; puts the headers on every answer. Not Starlette's middleware
    of functions, which holds streams up."""

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
        self.app, self.host, self.token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = refuse(self.host, self.token, Request(scope))
        return await (refusal or self.app)(scope, receive, send_with_headers)


def refuse(host: str, token: str | None, request: Request) -> Response | None:
    named = request.headers.get("host", "")
    if not is_own_name(named, host):
        return PlainTextResponse(f"this page is not served as {named!r}", 421)
    origin = request.headers.get("origin")
    if origin is not None and origin not in (f"http://{named}", f"https://{named}"):
        return PlainTextResponse("only this server's own pages may ask", 403)
    if token is None or is_same(request.cookies.get(COOKIE), token):
        return None
    if is_same(request.query_params.get("token"), token):
        answer = RedirectResponse(request.url.path, 303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return answer
    return PlainTextResponse(
        "the address lacks its token: use the one that `metaschedule dashboard` printed", 403
    )


def is_own_name(named: str, host: str) -> bool:
    """Whether a `Host` header names the address that the server is bound to. Bound to all addresses, any
    address in numbers will do, and the host's name as given; names in general would let other sites in."""
    name = named.rpartition(":")[0] if named.rpartition(":")[2].isdigit() else named
    name = name.strip("[]")
    if name in (host, "localhost") or (is_loopback(host) and is_loopback(name)):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return host in ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_same(given: str | None, token: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), token.encode())


def make_token(host: str) -> str | None:
    return None if is_loopback(host) else secrets.token_urlsafe(16)


async def serve_file(name: str, request: Request) -> Response:
    text, kind = read_file(name)
    return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})


async def serve_plotly(request: Request) -> Response:
    return Response(plotly_script(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


async def serve_view(source: Source, request: Request) -> Response:
    offset = request.query_params.get("offset", "0")
    try:
        data = await run_in_threadpool(
            lambda: view(source.get(), request.path_params["path"], int(offset) if offset.isdigit() else 0)
        )
    except LookupError as error:
        return JSONResponse({"error": str(error)}, 404)
    except DatabaseError as error:
        source.forget()
        return JSONResponse({"error": str(error)}, 503)
    return Response(
        json.dumps(finite(data)), media_type="application/json", headers={"Cache-Control": "no-store"}
    )


async def serve_events(source: Source, request: Request) -> Response:
    """Server-sent events: which runs have news. The page asks for what it shows."""
    return StreamingResponse(
        watch(source, request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def watch(source: Source, request: Request) -> AsyncIterator[str]:
    position: tuple[Any, ...] | None = None
    told, error = 0.0, ""
    clock = asyncio.get_running_loop().time
    while not (is_stopping(request.app) or await request.is_disconnected()):
        try:
            new = await run_in_threadpool(lambda: source.get().position())
            if error or (position is not None and new != position):
                error = ""
                yield event("news", {"position": list(new)})
                told = clock()
            position = new
        except DatabaseError as failure:
            source.forget()
            if str(failure) != error:
                error = str(failure)
                yield event("trouble", {"error": error})
                told = clock()
        if clock() - told > SILENCE or not told:
            yield ": alive\n\n"
            told = clock()
        await asyncio.sleep(PERIOD)


def is_stopping(app: Starlette) -> bool:
    """Whether the server is to end, as `metaschedule dashboard` tells; a stream would keep it from that."""
    return getattr(app.state, "is_stopping", lambda: False)()


def event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
