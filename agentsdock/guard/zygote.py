"""The zygote: a small single-threaded program that forks a process guard for each launch.

Started by the server by path, isolated (``-I -S``), with one argument: the number of the
request socket.  Forking from here costs a millisecond, where starting an interpreter for each
guard costs twenty.  One spare guard is always forked ahead and reads the request socket itself,
so that a launch waits for no fork at all.

A request is one byte with five descriptors: job, control socket, stdin, stdout, stderr.
End of file on the request socket ends the zygote and its spare; running guards go on.
"""

import array  # noqa: F401  (recv_fds needs it, and a guard should not load it)
import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress

if not __package__:  # run by path: the package is found, and nothing else is added
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))

from agentsdock.guard import process_guard

DESCRIPTORS = 5


def fork_spare(requests: socket.socket) -> tuple[int, int]:
    """Fork a guard that waits for a job; its pid, and a pipe that ends when it is not spare."""
    spare, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(spare)
        try:
            serve(requests, held)
        finally:
            os._exit(1)
    os.close(held)
    return pid, spare


def serve(requests: socket.socket, held: int) -> None:
    guard = process_guard.Guard()
    data, fds, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS)
    requests.close()
    if not data:
        os._exit(0)
    for fd in fds:
        os.set_inheritable(fd, False)
    os.close(held)
    os.dup2(0, 2)  # the zygote's stdin and stdout are /dev/null, its stderr is the server's
    job, control, *stdio = fds
    guard.work(job, control, stdio)
    os._exit(0)


def main(request_fd: int) -> None:
    os.set_inheritable(request_fd, False)
    requests = socket.socket(fileno=request_fd)
    for signum in process_guard.IGNORED_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps our guards
    gc.collect()
    gc.freeze()  # shared pages of the forks stay shared
    while True:
        pid, spare = fork_spare(requests)
        poll = select.poll()
        poll.register(requests, 0)  # hang-up only: the spare reads
        poll.register(spare, 0)
        if any(fd == request_fd for fd, _ in poll.poll()):
            with suppress(ChildProcessError):  # ignored children are waited for, not told of
                os.waitpid(pid, 0)
            return
        os.close(spare)


if __name__ == "__main__":
    main(int(sys.argv[1]))
