"""The process guard: the parent of one CLI, and the end of everything that it starts.

One standard-library file that runs outside the server.  ``zygote.py`` forks it once for each
launch and hands it five descriptors: the job, the control socket and the CLI's stdio.

The job is a marshalled dict, for server and guard run on the same interpreter and this takes
least memory: ``argv``, ``env`` and ``cwd`` in bytes, ``marker``, ``stop_signals`` (names),
``grace`` and ``teardown_grace`` (seconds), ``background``.

On the control socket the server may send bytes (any byte asks for a stop) and its end of file
means that the server has gone.  The guard answers with JSON lines:

``{"type": "accepted", "guard_pid", "guard_start"}``
    the job was taken; before this line nothing has been started;
``{"type": "started", "pid", "start_ticks"}`` or ``{"type": "failed", "errno", "message"}``;
``{"type": "report", ...}``
    the last line, with the fields that :meth:`Guard.report` names.
"""

import ctypes
import json
import marshal
import os
import resource  # noqa: F401 - wait4 imports it, which in each guard would cost 0.3 MB
import select
import signal
import socket
import sys
import time
from typing import Any

LINUX = sys.platform == "linux"
RUNG = "subreaper" if LINUX else "process_group"
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
CATCHABLE_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
BACKGROUND_NICE = 10
PRIORITY_RETRY_SECONDS = 0.15
RELIST_SECONDS = 0.01
READ_BYTES = 16 * 1024
MARKER_VARIABLE = "AGENTSDOCK_RUN_MARKER"


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it.  Raises OSError; Linux only."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot become a child subreaper: {os.strerror(number)}")


def read_bytes(path: str) -> bytes:
    """A whole kernel file.  Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while more := os.read(fd, READ_BYTES):
            data += more
        return data
    finally:
        os.close(fd)


def write_bytes(path: str, data: bytes) -> None:
    """Into a kernel file, in one call.  Raises OSError."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[bytes] | None:
    """``/proc/PID/stat`` from the state on (parent is 1, session 3, start ticks 19)."""
    try:
        data = read_bytes(f"/proc/{pid}/stat")
    except OSError:
        return None
    return data[data.rindex(b")") + 2 :].split()


def parent_of(pid: int) -> int | None:
    fields = stat_fields(pid)
    return None if fields is None else int(fields[1])


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None if it is gone or not Linux."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[19])


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(pid: int) -> list[int]:
    """Direct children, zombies included.  A child born or adopted meanwhile may be missing."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                found += map(int, read_bytes(f"/proc/{pid}/task/{thread}/children").split())
            except ProcessLookupError:
                continue
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}/task"):  # a kernel without the children files
            return [other for other in all_pids() if parent_of(other) == pid]
    return found


class Tree:
    """The CLI and all that came from it, seen from the process that inherits every orphan."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.pid = 0
        self.exit_code: int | None = None
        self.cpu_seconds = 0.0
        self.max_rss_bytes = 0
        self.ended = 0
        self._killed: set[int] = set()

    def prepare(self) -> None:
        become_subreaper()

    def spawn(self, argv: list[bytes], env: dict[bytes, bytes], stdio: list[int]) -> None:
        """Start the CLI in the current folder and a session of its own.

        Raises OSError, or ValueError for a NUL byte.
        """
        self.pid = os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(stdio)],
            setsid=True,
            setsigmask=(),
            setsigdef=CATCHABLE_SIGNALS,
        )

    def lower_priority(self) -> bool:
        """Put the CLI behind the server in the scheduler; False if it must be tried again."""
        try:
            os.setpriority(os.PRIO_PROCESS, self.pid, BACKGROUND_NICE)
            # A session of its own is a scheduling group of its own, which nice does not leave.
            write_bytes(f"/proc/{self.pid}/autogroup", b"%d" % BACKGROUND_NICE)
        except BlockingIOError:  # the kernel takes one change in 100 ms from ordinary users
            return False
        except OSError:
            pass
        return True

    def reap(self) -> bool:
        """Collect everything that has ended.  False is the proof that no child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            rss = usage.ru_maxrss * (1024 if LINUX else 1)
            self.max_rss_bytes = max(self.max_rss_bytes, rss)
            code = os.waitstatus_to_exitcode(status)
            if pid == self.pid:
                self.exit_code = code
            elif pid in self._killed and code == -signal.SIGKILL:
                self.ended += 1
            self._killed.discard(pid)

    def empty(self) -> bool:
        return not self.reap()

    def members(self) -> list[tuple[int, int]]:
        """(pid, parent) of all that live, parents first."""
        me = os.getpid()
        found = [(child, me) for child in children_of(me)]
        for pid, _ in found:
            found += [(child, pid) for child in children_of(pid)]
        return found

    def signal(self, signum: int) -> None:
        """Send a stop signal to every member, and wake those that are stopped."""
        for pid, parent in self.members():
            for number in (signum, signal.SIGCONT):
                try:
                    self._signal(pid, parent, number)
                except OSError:
                    break

    def _signal(self, pid: int, parent: int, signum: int) -> None:
        me = os.getpid()
        if parent == me:
            os.kill(pid, signum)  # not reaped yet, so the number is still its own
            return
        pidfd = os.pidfd_open(pid)
        try:
            if parent_of(pid) in (parent, me):
                signal.pidfd_send_signal(pidfd, signum)
        finally:
            os.close(pidfd)

    def kill(self) -> None:
        """SIGKILL our direct children: what they leave behind is ours next."""
        for pid in children_of(os.getpid()):
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return
        self._killed.add(pid)


class GroupTree(Tree):
    """What a kernel without subreapers (macOS) allows: process group, descendants, marker.

    Nothing is proven here: a daemon that leaves the group and clears its environment escapes.
    """

    def prepare(self) -> None:
        pass

    def empty(self) -> bool:
        return not self.reap() and not self.members()

    def members(self) -> list[tuple[int, int]]:
        import subprocess  # costs every Linux guard memory if it is loaded for nothing

        listing = subprocess.run(
            ["/bin/ps", "-axEww", "-o", "pid=,ppid=,pgid=,command="],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).stdout
        wanted = f"{MARKER_VARIABLE}={self.marker}".encode()
        rows = [line.split(None, 3) for line in listing.splitlines()]
        inside = {self.pid} if self.exit_code is None else set()
        size = -1
        while size != len(inside):
            size = len(inside)
            inside |= {
                int(row[0])
                for row in rows
                if int(row[2]) == self.pid or wanted in row[-1] or int(row[1]) in inside
            }
        inside.discard(os.getpid())
        return [(int(row[0]), int(row[1])) for row in rows if int(row[0]) in inside]

    def _signal(self, pid: int, parent: int, signum: int) -> None:
        os.kill(pid, signum)

    def kill(self) -> None:
        for pid, _ in self.members():
            self._kill(pid)


class Guard:
    """One job from its start to its report.

    Made ahead of its job, in a process that has no children and leaves after the job.
    """

    job: dict[str, Any]
    control: socket.socket
    tree: Tree

    def __init__(self) -> None:
        self.identity = {"guard_pid": os.getpid(), "guard_start": start_ticks(os.getpid())}
        self.stop_asked = False
        self.server_gone = False
        self.wakeup, waker = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.poll = select.poll()
        self.poll.register(self.wakeup, select.POLLIN)

    def work(self, job_fd: int, control_fd: int, stdio: list[int]) -> None:
        """Do the job that these descriptors bring."""
        self.control = socket.socket(fileno=control_fd)
        self.poll.register(self.control, select.POLLIN)
        self.send("accepted", **self.identity)
        self.job = marshal.loads(os.pread(job_fd, os.fstat(job_fd).st_size, 0))  # noqa: S302
        os.close(job_fd)
        self.tree = (Tree if LINUX else GroupTree)(self.job["marker"])
        if self.server_gone or not self.start(stdio):
            return
        try:
            self.run()
        except BaseException:
            self.clear()
            raise

    def send(self, kind: str, **fields: object) -> None:
        line = json.dumps({"type": kind, **fields}) + "\n"
        try:
            self.control.sendall(line.encode())
        except OSError:
            self.server_gone = True

    def start(self, stdio: list[int]) -> bool:
        """Start the CLI and say how that went.  The descriptors are closed either way."""
        job = self.job
        doing = "guard the program"
        try:
            self.tree.prepare()
            doing = "enter the working folder"
            os.chdir(job["cwd"])
            doing = "start the program"
            self.tree.spawn(job.pop("argv"), job.pop("env"), stdio)  # large, and not needed again
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            reason = str(error) if number is None else os.strerror(number)
            self.send("failed", errno=number, message=f"cannot {doing}: {reason}")
            return False
        finally:
            os.chdir("/")  # a guard must not pin the workspace
            for fd in stdio:
                os.close(fd)
        self.send("started", pid=self.tree.pid, start_ticks=start_ticks(self.tree.pid))
        return True

    def wait(self, seconds: float | None) -> None:
        """Until something happens or the time is over; takes in requests, collects the dead."""
        timeout = None if seconds is None else max(0.0, seconds * 1000)
        for fd, _ in self.poll.poll(timeout):
            if fd == self.wakeup:
                os.read(fd, 4096)
            elif self._receive():
                self.stop_asked = True
            else:
                self.server_gone = True
                self.poll.unregister(fd)
        self.tree.reap()

    def _receive(self) -> bytes:
        try:
            return self.control.recv(64)
        except ConnectionError:
            return b""

    def run(self) -> None:
        settled = not self.job["background"] or self.tree.lower_priority()
        while self.running and not self.stop_asked and not self.server_gone:
            self.wait(None if settled else PRIORITY_RETRY_SECONDS)
            settled = settled or not self.running or self.tree.lower_priority()
        began = time.monotonic()
        killed = self.running
        if killed and not self.server_gone:
            self.ask_to_stop(began)
        survivors = self.clear()
        if not self.server_gone:
            self.report(killed, survivors, time.monotonic() - began)

    @property
    def running(self) -> bool:
        return self.tree.exit_code is None

    def ask_to_stop(self, began: float) -> None:
        """The stop signals, evenly spread over the grace, until the CLI or the server is gone."""
        names = self.job["stop_signals"]
        for step, name in enumerate(names, 1):
            if not self.running:
                return
            self.tree.signal(signal.Signals[name])
            until = began + self.job["grace"] * step / len(names)
            while self.running and not self.server_gone and time.monotonic() < until:
                self.wait(until - time.monotonic())

    def clear(self) -> list[int]:
        """Kill and reap until nothing is left, or the bounded time is over: what still lives."""
        until = time.monotonic() + self.job["teardown_grace"]
        while not self.tree.empty():
            self.tree.kill()
            if time.monotonic() >= until:
                return [pid for pid, _ in self.tree.members()]
            self.wait(RELIST_SECONDS)
        return []

    def report(self, killed: bool, survivors: list[int], elapsed: float) -> None:
        self.send(
            "report",
            exit_code=self.tree.exit_code,
            killed=killed,
            processes_ended=self.tree.ended,
            survivors=survivors,
            elapsed_ms=elapsed * 1000,
            cpu_seconds=self.tree.cpu_seconds,
            max_rss_bytes=self.tree.max_rss_bytes,
            rung=RUNG,
        )
