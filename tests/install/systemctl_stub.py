"""Stands in for ``systemctl --user``: keeps one unit's process, as its file says.

It reads ``ExecStart=`` by the rules of systemd.unit(5), so that a path that is quoted wrongly
does not start.  What it was asked for is in ``calls``, in the folder ``$STUB``.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

STUB = pathlib.Path(os.environ.get("STUB", "."))
UNIT = pathlib.Path.home() / ".config/systemd/user/agentsdock.service"
PID = STUB / "pid"


def words_of(line):
    """Double quotes with C escapes; then %% and $$ are the characters themselves."""
    found = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        word = re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        if re.search(r"(?<!%)(?:%%)*%(?!%)|(?<!\$)(?:\$\$)*\$(?!\$)", word):
            sys.exit(f"a specifier or variable in {word}")
        found.append(word.replace("%%", "%").replace("$$", "$"))
    return found


def pid():
    """Of the living process; a zombie that nobody has waited for is dead."""
    try:
        number = int(PID.read_text())
        state = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else number


def start():
    if pid():
        return
    line = next(x for x in UNIT.read_text().splitlines() if x.startswith("ExecStart="))
    environment = {"HOME": os.environ["HOME"], "PATH": "/usr/bin:/bin", "INVOCATION_ID": "1"}
    with open(STUB / "journal", "ab") as journal:
        process = subprocess.Popen(
            words_of(line.partition("=")[2]),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=journal,
            stderr=journal,
            start_new_session=True,
        )
    PID.write_text(str(process.pid))


def stop():
    deadline = time.monotonic() + 30
    while number := pid():
        os.kill(number, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.05)


def main():
    command = [word for word in sys.argv[1:] if word != "--user"]
    with contextlib.suppress(OSError), open(STUB / "calls", "a") as calls:
        calls.write(" ".join(command) + "\n")
    if (STUB / "no-bus").exists():
        sys.exit("Failed to connect to bus: No medium found")
    if command[0] == "start":
        start()
    elif command[0] == "stop":
        stop()
    elif command[0] == "show":
        print("ActiveState=active\nSubState=running" if pid() else "ActiveState=failed")


if __name__ == "__main__":
    main()
