"""Reaching Ray: starting one on this machine, or joining a cluster; what Ray's errors mean."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...target.detect import cores
from ..outcome import WorkersError, one_line

log = logging.getLogger("metaschedule")
RUNNER = "metaschedule_runner"  # the resource of nodes on which candidates are timed
STORE = 256 << 20  # bytes for objects of a Ray of our own: a batch has less than one
CONNECT = 90.0  # seconds
TOO_SLOW = "timed out", "Starting Ray client server failed"
CLOSE = 20.0  # seconds
CLOSE_LOST = 5.0  # without a head: Ray ends a process that still is connected after 60 s
LOOPBACK = "127.0.0.1"
Answer = TypeVar("Answer")

HINT = (
    "is the head running (`ray status`), does the address say its port (6379, or ray://host:10001 for a "
    "client), is a firewall between, and if the cluster asks for a token, is RAY_AUTH_MODE=token set here, "
    "and RAY_AUTH_TOKEN or ~/.ray/auth_token right; if it encrypts, are RAY_USE_TLS=1 and its certificates? "
    "A wrong or missing token or certificate may show as a timeout"
)


def is_installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def import_ray() -> Any:
    """Ray, told before it is imported to keep to itself."""
    if not is_installed():
        raise WorkersError('workers="ray" needs Ray: pip install "metaschedule[ray]", here and on all nodes')
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise
    # Otherwise 127.0.0.1 becomes the address of the host.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault(
        "RAY_ENABLE_AUTO_CONNECT", "0"
    )  # a late call, after the end, would join any cluster
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 otherwise: whatever else runs would come first
    import ray

    return ray


class Guarded:
    """Ray's functions, for several threads and until `close`.

    Whoever calls Ray after `ray.shutdown`, or during it, ends this process without a word: with status 1, or
    by a fault. So no call begins after `close`, which waits for those that have begun.

        guarded.get(future, timeout=1.0)         ray.get
        guarded.submit(actor.run, *arguments)    actor.run.remote
    """

    def __init__(self, ray: Any) -> None:
        self._ray, self._calls, self._is_closed = ray, 0, False
        self._changed = threading.Condition()

    def submit(self, remote: Any, *arguments: Any) -> Any:
        """Call what is elsewhere: the future, or the actor."""
        return self._call(remote.remote, arguments, {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._call(getattr(self._ray, name), arguments, options)

    def _call(self, function: Callable[..., Answer], arguments: Any, options: Any) -> Answer:
        with self._changed:
            if self._is_closed:
                raise WorkersError("closed")
            self._calls += 1
        try:
            return function(*arguments, **options)
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """Whether nobody is in a call any more, after so long at most."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._calls, seconds)


class Connection:
    """Ray as this process knows it. `address` is "ray" or that of a client's server, "ray://host:port"."""

    _lock = threading.RLock()
    _sharing = 0  # connections of this process; the last one ends Ray,
    _is_ours = False  # if the first one began it, and not the caller

    def __init__(self, address: str, join: bool = False) -> None:
        """With `join` none is started: without RAY_ADDRESS it is the cluster of this machine."""
        module = import_ray()
        self.is_local = self._is_closed = False
        with Connection._lock:
            if not module.is_initialized():
                self._connect(module, address, join)
                Connection._is_ours = True
            Connection._sharing += 1
        self.ray: Any = Guarded(module)
        self.gcs = self._gcs_address(address)
        atexit.register(self.close)  # before Ray's own, which does not wait for threads of ours

    def _connect(self, ray: Any, address: str, join: bool) -> None:
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address != "ray":
            options |= {"address": address}
        elif "RAY_ADDRESS" in os.environ:
            options |= {"address": os.environ["RAY_ADDRESS"]}
        elif join:
            options |= {"address": "auto"}
        else:
            self.is_local = True
            options |= {
                "address": "local", "num_cpus": cores(), "resources": {RUNNER: 1}, "include_dashboard": False,
                "object_store_memory": STORE, "_node_ip_address": LOOPBACK,
            }  # fmt: skip
        where = options["address"]
        if where.startswith(f"{LOOPBACK}:"):  # of several clusters on a machine, look for this one's node
            options |= {"_node_ip_address": LOOPBACK}
        try:
            if self.is_local:  # in this thread, because its processes end with the thread that starts them
                start(ray, options)
            else:
                check_port(where)
                within(CONNECT, lambda: start(ray, options))
        except WorkersError:
            raise
        except TimeoutError:
            raise WorkersError(f"no answer from Ray at {where} in {CONNECT:g} s: {HINT}") from None
        except Exception as error:
            raise WorkersError(f"Ray at {where} cannot be reached: {one_line(error)}; {HINT}") from error

    def _gcs_address(self, address: str) -> tuple[str, int] | None:
        """What must answer as long as there is a cluster."""
        if address.startswith("ray://"):
            return host_and_port(address.removeprefix("ray://"))
        try:
            return host_and_port(self.ray.get_runtime_context().gcs_address)
        except Exception:  # of the caller's own client: its errors will tell
            log.debug("Ray does not say where its head is", exc_info=True)
            return None

    def is_head_alive(self) -> bool:
        if self.gcs is None:
            return True
        try:
            socket.create_connection(self.gcs, timeout=2.0).close()
            return True
        except OSError:
            return False

    def close(self) -> None:
        """End what was begun here. A head that is gone would be waited for, so not for ever."""
        atexit.unregister(self.close)
        patience = CLOSE if self.is_head_alive() else CLOSE_LOST
        is_quiet = self.ray.close(patience)
        with Connection._lock:
            if self._is_closed:
                return
            self._is_closed = True
            Connection._sharing -= 1
            if Connection._sharing or not Connection._is_ours:
                return
            Connection._is_ours = False
            if not is_quiet:
                log.warning("Ray has not answered a call for %g s, and is left as it is", patience)
                return
            try:
                within(CLOSE, import_ray().shutdown)
            except TimeoutError:
                log.warning("Ray did not shut down in %g s", CLOSE)


def start(ray: Any, options: dict[str, Any]) -> None:
    """Ray gives up its own processes, or a client's server, after 30 s on a busy machine: once more, then."""
    try:
        ray.init(**options)
    except Exception as error:
        if not any(why in str(error) for why in TOO_SLOW):
            raise
        log.warning("Ray did not start in 30 s; trying again")
        ray.shutdown()
        ray.init(**options)


def host_and_port(text: str) -> tuple[str, int] | None:
    """
    >>> host_and_port("10.0.0.5:6379"), host_and_port("head")
    (('10.0.0.5', 6379), None)
    """
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon and port.isdecimal() else None


def check_port(address: str) -> None:
    """Ray tries for a minute and more to reach what is not there, and then may end the process."""
    place = host_and_port(address.removeprefix("ray://"))
    if place is None:
        return  # "auto", or a name without a port: Ray knows
    try:
        socket.create_connection(place, timeout=10.0).close()
    except OSError as error:
        raise WorkersError(f"nothing answers at {address} ({error.strerror or error}): {HINT}") from None


def within(seconds: float, call: Callable[[], Answer]) -> Answer:
    """What a call gives; `TimeoutError` if that takes longer, and then it goes on in a thread of its own."""
    results: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors[0]
    return results[0]
