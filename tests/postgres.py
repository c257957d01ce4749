"""A real PostgreSQL server for tests: of this machine's packages, in a temporary directory, reached through a
unix socket there, and nowhere else."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

OWNER = "owner"


def program(name: str) -> str | None:
    """A program of PostgreSQL, which Debian keeps out of the path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: float(p.parts[-3]))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


def unavailable() -> str:
    """Why there can be no server here; "" if there can."""
    if importlib.util.find_spec("psycopg") is None:
        return 'psycopg is not installed: pip install "metaschedule[postgres]"'
    if program("initdb") is None or program("postgres") is None:
        return "PostgreSQL's server is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and not any(user.pw_name == "postgres" for user in pwd.getpwall()):
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


class Server:
    """`start`, `stop` and `kill` may be called in any order; the data stays until `remove`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ms-postgres-"))
        self.directory.chmod(0o755)
        self._data = self.directory / "data"
        # the server refuses to run as root
        self._user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self.directory, "postgres", "postgres")
        initdb = [
            str(program("initdb")),
            "-D",
            str(self._data),
            "-U",
            OWNER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, cwd="/", **self._user)
        self._process: subprocess.Popen[Any] | None = None
        self._databases = 0

    def start(self) -> None:
        if self._process is not None:
            return
        options = {"listen_addresses": "", "unix_socket_directories": self.directory, "fsync": "off"}
        command = [str(program("postgres")), "-D", str(self._data)]
        command += [f"--{name}={value}" for name, value in options.items()]
        with (self.directory / "log").open("ab") as log:
            self._process = started = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._user)
        import psycopg

        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                if started.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.directory / "log").read_text()) from None
                time.sleep(0.02)

    def stop(self) -> None:
        self._end(signal.SIGINT)  # ends connections, then itself

    def kill(self) -> None:
        """As a power cut: its other processes notice and end too, within a moment."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.directory), safe='')}"

    def create_database(self, options: str = "") -> str:
        """The URL of a new one."""
        self._databases += 1
        name = f"tuning{self._databases}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
        return self.url(name)

    def execute(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        import psycopg

        text: Any = statement
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def terminate_backends(self) -> None:
        """Cut every connection but this one."""
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


@contextmanager
def running_server() -> Iterator[Server]:
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()
