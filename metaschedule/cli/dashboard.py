"""`metaschedule dashboard`: a page over a database, live while something is tuned into it."""

from __future__ import annotations

import os
import socket
import webbrowser
from typing import Annotated

import typer

from .output import result_console

PORT = 8266
NICENESS = 10  # what is tuned on this machine comes first
MISSING = "the dashboard needs Starlette, uvicorn and plotly: pip install 'metaschedule[dashboard]'"


def dashboard(
    database: Annotated[str, typer.Argument(help="database file, or postgresql://...")] = "tuning.db",
    host: Annotated[
        str, typer.Option(help="address to bind to; others than loopback ask for a token")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help=f"{PORT}, or the next free one")] = None,
    browser: Annotated[bool, typer.Option(help="open the page")] = True,
) -> None:
    """Serve a page that shows what was tuned and what goes on now. It only reads. Ctrl-C ends it."""
    try:
        import uvicorn

        from ..dashboard.page import plotly_script
        from ..dashboard.server import make_app, make_token
        from ..dashboard.source import Source

        plotly_script()
    except ImportError as error:
        raise typer.BadParameter(f"{MISSING} ({error})") from None
    listener = bind(host, port)
    token = make_token(host)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/" + (f"?token={token}" if token else "")
    result_console().print(f"{address}  (Ctrl-C ends)", highlight=False, soft_wrap=True)
    if browser:
        webbrowser.open(address)
    os.nice(NICENESS)
    app = make_app(Source(database), host, token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    app.state.is_stopping = lambda: server.should_exit
    server.run(sockets=[listener])


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port asked for, the usual one or one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in [PORT, 0] if port is None else [port]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)  # from now on a page that is opened waits, and is not refused
            return listener
        except OSError as error:
            listener.close()
            if number == 0 or port is not None:
                raise typer.BadParameter(f"cannot listen on {host}:{number}: {error.strerror}") from None
    raise AssertionError("port 0 is always free")
