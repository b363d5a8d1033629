"""The health check believes the new server and nobody else."""

import contextlib
import http.server
import json
import os
import socket
import threading

import network
import pytest
from network import Address, is_free, nearby, owner, wait_healthy
from prefix import InstallError

EXPECTED = {"server_version": "2.0.0", "state_dir": "/state"}


@contextlib.contextmanager
def answering(status=200, body=b"{}"):
    """A server that gives one answer to all; what it was asked is noted."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("X-AgentsDock-Token")))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Address("127.0.0.1", server.server_address[1]), asked
        finally:
            server.shutdown()
            thread.join()


def health_of(**fields):
    return json.dumps({**EXPECTED, "server_instance_id": "new", **fields}).encode()


def check(address, *, alive=lambda: True, seconds=0.0):
    wait_healthy(address, "token", EXPECTED, "old", alive, seconds)


def test_the_new_server_is_believed_and_asked_with_the_token():
    with answering(body=health_of()) as (address, asked):
        check(address)
        assert asked == [("/api/health", "token")]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, health_of(server_version="1.0.0"), "server_version is '1.0.0', not '2.0.0'"),
        (200, health_of(state_dir="/other"), "state_dir is '/other'"),
        (200, health_of(server_instance_id="old"), "the same server as before"),
        (200, health_of(server_instance_id=None), "the same server as before"),
        (200, b"ok", "no healthy answer"),
        (200, b"[]", "server_version is None"),
        (200, b"[1]", "no healthy answer"),
        (200, b"\xff", "no healthy answer"),
        (401, b"{}", "status 401"),
        (500, health_of(), "status 500"),
    ],
)
def test_anybody_else_is_not(status, body, reason):
    with answering(status, body) as (address, _), pytest.raises(InstallError) as caught:
        check(address)
    assert reason in str(caught.value)


def test_a_listener_that_says_nothing_has_a_time_limit(monkeypatch):
    monkeypatch.setattr(network, "ANSWER_SECONDS", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(InstallError, match="no healthy answer"),
    ):
        check(Address("127.0.0.1", silent.getsockname()[1]))


def test_something_that_is_no_http_is_no_answer():
    def speak(listener):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"SSH-2.0-x\r\n")

    with socket.create_server(("127.0.0.1", 0)) as odd:
        thread = threading.Thread(target=speak, args=[odd])
        thread.start()
        with pytest.raises(ValueError, match="BadStatusLine"):
            network.health(Address("127.0.0.1", odd.getsockname()[1]), None)
        thread.join()


def test_a_slow_start_is_waited_for_as_long_as_the_process_lives(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(network.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(network.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    def health(address, token):
        if now[0] < 60:
            raise ConnectionRefusedError
        return json.loads(health_of())

    monkeypatch.setattr(network, "health", health)
    check(Address("127.0.0.1", 1), seconds=300)
    assert 60 <= now[0] < 61
    assert capsys.readouterr().out.count("still waiting") == 5
    now[0] = 0
    with pytest.raises(InstallError, match="ended instead of answering"):
        check(Address("127.0.0.1", 1), alive=lambda: now[0] < 10, seconds=300)
    assert now[0] < 11


def test_a_taken_port_is_seen_its_owner_named_and_a_free_one_found():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        assert not is_free(address)
        assert owner(address.port).startswith(f"process {os.getpid()} (")
        found = nearby(address)
        assert found is not None
        assert found.port > address.port
        assert is_free(found)
        assert not is_free(Address("0.0.0.0", address.port))
    assert is_free(address)


def test_a_name_whose_one_address_is_taken_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.2", 0)) as second:
        port = second.getsockname()[1]
        found = [(socket.AF_INET, 1, 6, "", (host, port)) for host in ("127.0.0.1", "127.0.0.2")]
        monkeypatch.setattr(network.socket, "getaddrinfo", lambda *_, **__: found)
        assert not is_free(Address("localhost", port))
        del found[1]
        assert is_free(Address("localhost", port))


@pytest.mark.parametrize("bind", ["no such host.invalid", "203.0.113.1"])
def test_an_address_that_this_machine_has_not_is_an_error(bind):
    with pytest.raises(InstallError, match=r"has no address|cannot listen"):
        is_free(Address(bind, 0))


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("10.0.0.1", "http://10.0.0.1:1"),
    ],
)
def test_an_address_as_this_machine_reaches_it(bind, url):
    assert str(Address(bind, 1)) == url
