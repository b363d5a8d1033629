"""The serve loop: our listeners, one Connection per client, and an exit that nobody can delay."""

import errno
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from attrs import frozen
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from agentsdock.config import SettingError, Settings
from agentsdock.logs import get_logger, where
from agentsdock.web.connection import Connection, Timing

BACKLOG = 512
SEND_BUFFER_BYTES = 256 * 1024
USER_TIMEOUT_MS = 30_000
"""The kernel's own limit on unacknowledged bytes, where it has one (Linux)."""
MAX_HEADER_BYTES = 64 * 1024
MAX_FRAME_BYTES = 64 * 1024

log = get_logger()


@frozen
class Listeners:
    """Bound and listening sockets.  Until they are served, connections wait in the kernel."""

    sockets: tuple[socket.socket, ...]

    @property
    def addresses(self) -> list[str]:
        return [_url(sock.getsockname()) for sock in self.sockets]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def local_address(self) -> str:
        """How programs of this machine reach it, by the loopback where that is listened on."""
        host, port = self.sockets[0].getsockname()[:2]
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        return _url((loopback, port))


async def bind(settings: Settings) -> Listeners:
    """Listen on every address of ``settings.bind``; port 0 is any free one.

    Raises SettingError if that is not possible.
    """
    host, port = settings.bind, settings.port
    try:
        found = await trio.socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise SettingError(f"AGENTSDOCK_AGENT_BIND is {host}, which has no address") from error
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    sockets: list[socket.socket] = []
    for family, address in addresses:
        if port == 0 and sockets:
            address = (address[0], sockets[0].getsockname()[1], *address[2:])
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            _prepare(sock, alone=len(addresses) == 1)
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and sockets:
                continue
            for other in sockets:
                other.close()
            raise _cannot_listen(host, port, error) from error
        sockets.append(sock)
    return Listeners(tuple(sockets))


async def serve(
    app: Callable[..., Awaitable[None]],
    listeners: Listeners,
    settings: Settings,
    stopping: trio.Event,
    *,
    timing: Timing | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``app`` until ``stopping`` is set, then leave within ``timing.drain`` seconds.

    Reports its addresses (URLs) once connections are taken.  On the way out the listeners
    close at once, idle connections too; requests in work and WebSockets (which their handlers
    close with 1012) have the drain time, then they are cut.
    """
    timing = timing or Timing(stall=settings.websocket_stall_seconds)
    server = _Server(ASGIWrapper(app), timing)
    accepting_on = [
        trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in listeners.sockets
    ]
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(
                partial(trio.serve_listeners, handler_nursery=connections),
                server.handle,
                accepting_on,
            )
            task_status.started(listeners.addresses)
            await stopping.wait()
            accepting.cancel_scope.cancel()
        await server.wind_down()
        connections.cancel_scope.deadline = trio.current_time() + timing.drain


class _Server:
    def __init__(self, app: Any, timing: Timing) -> None:
        self._app = app
        self._timing = timing
        self._config = _protocol_config()
        self._context = WorkerContext(None)
        self._connections: set[Connection] = set()
        # Turns need descriptors too, so clients may have half of them at most.
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    async def handle(self, stream: trio.SocketStream) -> None:
        connection = Connection(stream.socket, self._app, self._config, self._context, self._timing)
        if len(self._connections) >= self._limit:
            log.warning("connection refused: too many are open", open=self._limit)
            connection.abort()
            return
        self._connections.add(connection)
        try:
            await connection.run()
        except* Exception as group:
            log.error("connection failed", error=where(group))
        finally:
            self._connections.discard(connection)

    async def wind_down(self) -> None:
        await self._context.terminated.set()
        for connection in self._connections:
            connection.stop_when_idle()


class _ProtocolLog:
    """Where hypercorn reports.  Requests are not logged: a query may hold the token."""

    def __init__(self, config: Config) -> None:
        pass

    async def access(self, *_: Any) -> None:
        pass

    async def exception(self, message: str, *_: Any) -> None:
        error = sys.exception()
        log.error(
            "request failed outside its handler",
            what=message,
            error=None if error is None else where(error),
        )

    warning = error = exception


def _protocol_config() -> Config:
    config = Config()
    config.logger_class = _ProtocolLog  # type: ignore[assignment]
    config.h11_max_incomplete_size = MAX_HEADER_BYTES
    config.websocket_max_message_size = MAX_FRAME_BYTES
    config.keep_alive_max_requests = 1_000_000
    config.include_server_header = False
    return config


def _prepare(sock: socket.socket, *, alone: bool) -> None:
    """Options of a listening socket; what it accepts inherits them."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sock.family == socket.AF_INET6 and not alone:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


def _cannot_listen(host: str, port: int, error: OSError) -> SettingError:
    if error.errno == errno.EADDRINUSE:
        return SettingError(
            f"port {port} on {host} is in use by another program: "
            "stop that one or choose another AGENTSDOCK_AGENT_PORT"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return SettingError(
            f"port {port} on {host} needs rights that this user lacks: "
            "choose an AGENTSDOCK_AGENT_PORT above 1023"
        )
    return SettingError(f"cannot listen on {host}, port {port}: {error.strerror}")


def _url(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
