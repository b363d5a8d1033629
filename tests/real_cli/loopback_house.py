"""A server, its CLIs and their model in a network namespace that has nothing but the loopback.

It is started inside that namespace, with listening sockets that were opened outside.  Whoever
connects to those talks to what runs in here, and nothing in here can talk to anybody else.

Started as ``loopback_house.py JSON SERVER_FD MODEL_FD``: ``state_dir``, ``environ``, ``token``.
``{model}`` in the files that ``files`` names and in the environment becomes the model's address.
The first line of its output is empty once everything answers; it ends when its stdin does.
"""

import fcntl
import json
import pathlib
import signal
import socket
import struct
import sys
import threading
import urllib.parse

from agentsdock.testing.model_server import running_model_server
from agentsdock.testing.server import running_server

SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


def raise_loopback():
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        sys.exit("this namespace has more than the loopback")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def relay(listening, url):
    """Join every connection from outside with one to ``url``."""
    address = (urllib.parse.urlsplit(url).hostname, urllib.parse.urlsplit(url).port)

    def accept():
        while True:
            outer, _ = listening.accept()
            try:
                inner = socket.create_connection(address)
            except OSError:
                outer.close()
                continue
            for source, sink in ((outer, inner), (inner, outer)):
                threading.Thread(target=carry, args=(source, sink), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def carry(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # not without its server
    raise_loopback()
    told = json.loads(sys.argv[1])
    for_server, for_model = (socket.socket(fileno=int(fd)) for fd in sys.argv[2:])
    with running_model_server() as model:
        for name, text in told["files"].items():
            path = pathlib.Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{model}", model.url))
        environ = {key: v.replace("{model}", model.url) for key, v in told["environ"].items()}
        with running_server(told["state_dir"], environ, token=told["token"]) as server:
            relay(for_server, server.url)
            relay(for_model, model.url)
            print(flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
