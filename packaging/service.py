"""What keeps the server running: a systemd user unit, a launchd agent, or nobody."""

import os
import pathlib
import plistlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prefix import InstallError, Prefix, say, write_file

COMMAND_SECONDS = 120
"""A stop waits for turns to end and to be recorded."""
STOP_SECONDS = 90
LOG_LINES = 15
LOAD_TRIES = 5
UNIT = "agentsdock.service"
LABEL = "org.agentsdock.server"

_UNIT = """\
# Written by agentsdock's installer, anew at each update: use `systemctl --user edit agentsdock`.
[Unit]
Description=agentsdock
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart=/bin/sh {command} serve
Restart=on-failure
RestartSec=5
# A setting that cannot be used, and a state of a newer release: trying again does not help.
RestartPreventExitStatus=2 3
# The server ends its turns in order; what outlives it is killed with the unit.
KillMode=mixed
TimeoutStopSec={stop}
# Turns get control groups of their own below this one.
Delegate=yes
# The kernel's choice of a victim ends that turn, not the server.
OOMPolicy=continue
MemoryHigh=80%
MemoryMax=90%
TasksMax=8192

[Install]
WantedBy=default.target
"""


class Service(Protocol):
    name: str

    def is_ours(self) -> bool:
        """Whether this installation's server is known to the manager."""
        ...

    def preflight(self) -> None:
        """Raises InstallError, with the commands that would help, before anything is changed."""
        ...

    def install(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        """Returns once the server has ended."""
        ...

    def alive(self) -> bool: ...
    def log_tail(self) -> str: ...
    def remove(self) -> None: ...


def choose(prefix: Prefix, *, managed: bool) -> Service:
    if not managed:
        return Unmanaged(prefix)
    return Launchd(prefix) if sys.platform == "darwin" else Systemd(prefix)


def quoted(path: pathlib.Path) -> str:
    """A path as one word of ExecStart: quotes, specifiers and variables are taken literally."""
    text = str(path)
    for special, literal in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(special, literal)
    return f'"{text}"'


def run(words: Sequence[str], *, check: bool = True) -> str:
    """Output of a command of the service manager.  Raises InstallError."""
    try:
        ended = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
    except FileNotFoundError:
        raise InstallError(f"{words[0]} is not there: use --no-service") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"{' '.join(words)} did not end in {COMMAND_SECONDS} s") from None
    if check and ended.returncode:
        said = (ended.stderr or ended.stdout).strip()
        raise InstallError(f"{' '.join(words)} failed: {said}")
    return ended.stdout.strip()


@dataclass
class Systemd:
    """A unit of the user's own manager."""

    prefix: Prefix
    name: str = "systemd"

    @property
    def path(self) -> pathlib.Path:
        config = os.environ.get("XDG_CONFIG_HOME") or str(pathlib.Path.home() / ".config")
        return pathlib.Path(config) / "systemd/user" / UNIT

    def is_ours(self) -> bool:
        return self.path.exists() and quoted(self.prefix.command) in self.path.read_text()

    def preflight(self) -> None:
        if shutil.which("systemctl") is None:
            raise InstallError("systemctl is not there: use --no-service and start it yourself")
        self._find_manager()
        if self.path.exists() and not self.is_ours():
            raise InstallError(
                f"{self.path} is of another installation: uninstall that, or use --no-service"
            )

    def _find_manager(self) -> None:
        """Over ssh, su and sudo the variable that leads to the manager is often not set."""
        own = f"/run/user/{os.geteuid()}"
        for folder in dict.fromkeys((os.environ.get("XDG_RUNTIME_DIR", own), own)):
            os.environ["XDG_RUNTIME_DIR"] = folder
            if folder == own:
                os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
            try:
                run(["systemctl", "--user", "show-environment"])
                return
            except InstallError as error:
                reason = error
        raise InstallError(
            f"your systemd user manager cannot be reached: {reason}\n"
            f"  Log in directly as this user (not by su or sudo), or have it started:\n"
            f"    sudo loginctl enable-linger {_user()}\n"
            f"    export XDG_RUNTIME_DIR={own}\n"
            f"  Or install with --no-service and start it yourself."
        )

    def install(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        command = quoted(self.prefix.command)
        write_file(self.path, _UNIT.format(command=command, stop=STOP_SECONDS), 0o644)
        self._ctl("daemon-reload")
        self._ctl("enable", UNIT)
        self._linger()

    def _linger(self) -> None:
        user = _user()
        try:
            if run(["loginctl", "show-user", user, "--property=Linger"]) == "Linger=yes":
                return
            run(["loginctl", "enable-linger", user])
            say(f"lingering is now on for {user}: the server outlives your last logout")
        except InstallError:
            say(
                "WARNING: the server ends with your last logout and does not start at boot;\n"
                f"  to change that: sudo loginctl enable-linger {user}"
            )

    def start(self) -> None:
        self._ctl("reset-failed", UNIT, check=False)
        self._ctl("start", UNIT)

    def stop(self) -> None:
        if self.path.exists():
            self._ctl("stop", UNIT)

    def alive(self) -> bool:
        """A server that failed and waits for its next try does not count."""
        states = self._ctl("show", UNIT, "--property=ActiveState,SubState", check=False)
        found = dict(line.partition("=")[::2] for line in states.splitlines())
        living = found.get("ActiveState") in ("active", "activating", "reloading")
        return living and found.get("SubState") != "auto-restart"

    def log_tail(self) -> str:
        try:
            words = ["journalctl", "--user", "-u", UNIT, "-n", str(LOG_LINES), "-o", "cat"]
            return run([*words, "--no-pager"])
        except InstallError as error:
            return str(error)

    def remove(self) -> None:
        if self.path.exists():
            self._ctl("disable", UNIT, check=False)
            self.path.unlink()
            self._ctl("daemon-reload", check=False)

    def _ctl(self, *words: str, check: bool = True) -> str:
        return run(["systemctl", "--user", *words], check=check)


@dataclass
class Launchd:
    """An agent of the user.  The domain that took it is the one that is asked afterwards."""

    prefix: Prefix
    name: str = "launchd"
    gone_seconds: float = 30.0

    @property
    def path(self) -> pathlib.Path:
        return pathlib.Path.home() / "Library/LaunchAgents" / f"{LABEL}.plist"

    def is_ours(self) -> bool:
        return str(self.prefix.command) in self._written().get("ProgramArguments", ())

    def preflight(self) -> None:
        if shutil.which("launchctl") is None:
            raise InstallError("launchctl is not there: use --no-service and start it yourself")
        if self.path.exists() and not self.is_ours():
            raise InstallError(
                f"{self.path} is of another installation: uninstall that, or use --no-service"
            )

    def _wanted(self) -> dict[str, Any]:
        return {
            "Label": LABEL,
            "ProgramArguments": ["/bin/sh", str(self.prefix.command), "serve"],
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            # It cannot be told which statuses are final, so a bad setting is retried, slowly.
            "ThrottleInterval": 30,
            "ExitTimeOut": STOP_SECONDS,
            "ProcessType": "Interactive",
            "StandardOutPath": str(self.prefix.log_file),
            "StandardErrorPath": str(self.prefix.log_file),
            "HardResourceLimits": {"NumberOfProcesses": 4096},
        }

    def _written(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = plistlib.loads(self.path.read_bytes())
            return found
        except (OSError, ValueError, plistlib.InvalidFileException):
            return {}

    def install(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.path, plistlib.dumps(self._wanted()).decode(), 0o644)

    def start(self) -> None:
        for left in reversed(range(LOAD_TRIES)):
            refusals = []
            for domain in self._domains():
                try:
                    run(["launchctl", "bootstrap", domain, str(self.path)])
                    return
                except InstallError as error:
                    refusals.append(str(error))
            if left:
                time.sleep(1)
        raise InstallError("; ".join(refusals))

    def stop(self) -> None:
        """Unloading goes on after the command has returned: wait until the label is gone."""
        deadline = time.monotonic() + self.gone_seconds + STOP_SECONDS
        while domain := self._loaded_in():
            if time.monotonic() > deadline:
                raise InstallError(f"launchd still holds {domain}/{LABEL}")
            run(["launchctl", "bootout", f"{domain}/{LABEL}"], check=False)
            time.sleep(0.5)

    def alive(self) -> bool:
        """A server that was taken and not yet started counts; one that failed does not."""
        domain = self._loaded_in()
        if domain is None:
            return False
        said = run(["launchctl", "print", f"{domain}/{LABEL}"], check=False)
        return "state = running" in said or "last exit code = (never exited)" in said

    def log_tail(self) -> str:
        return tail(self.prefix.log_file)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _loaded_in(self) -> str | None:
        for domain in self._domains():
            try:
                run(["launchctl", "print", f"{domain}/{LABEL}"])
                return domain
            except InstallError:
                continue
        return None

    def _domains(self) -> list[str]:
        """The desktop's, and where nobody is logged in there (over ssh), the user's."""
        return [f"gui/{os.geteuid()}", f"user/{os.geteuid()}"]


@dataclass
class Unmanaged:
    """No service: the server is started for the health check alone."""

    prefix: Prefix
    name: str = "none"
    _trial: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def is_ours(self) -> bool:
        return False

    def preflight(self) -> None:
        pass

    def install(self) -> None:
        pass

    def start(self) -> None:
        with open(self.prefix.log_file, "wb") as log:
            os.fchmod(log.fileno(), 0o600)
            self._trial = subprocess.Popen(
                [str(self.prefix.command), "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        write_file(self.prefix.trial_file, f"{self._trial.pid}", 0o600)

    def stop(self) -> None:
        if self._trial is None:
            return
        self._trial.terminate()
        try:
            self._trial.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._trial.kill()
            self._trial.wait()
        self.prefix.trial_file.unlink(missing_ok=True)

    def alive(self) -> bool:
        return self._trial is not None and self._trial.poll() is None

    def log_tail(self) -> str:
        return tail(self.prefix.log_file)

    def remove(self) -> None:
        pass


def tail(path: pathlib.Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4000))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-LOG_LINES:])
    except OSError as error:
        return f"no log: {error.strerror}"


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
