"""Installs a release from the tree that this file lies in.  Started by ``install.sh``.

The order is what makes it safe: everything that can fail is done beside the running release,
then the server is stopped, the link ``current`` is changed, the server is started and asked who
it is.  Whatever goes wrong from there on puts the old release and its data back.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import environments
from network import Address, health, instance, is_free, nearby, owner, unhealthy, wait_healthy
from prefix import (
    DEFAULT_PORT,
    Installed,
    InstallError,
    Prefix,
    State,
    in_words,
    order,
    remove,
    say,
    write_file,
)
from runtime_manifest import Release, SourceError, release_of, require
from service import STOP_SECONDS, Service, Unmanaged, choose

SOURCE = pathlib.Path(__file__).resolve().parent.parent
RUN_MARKER = "AGENTSDOCK_RUN_MARKER"
RESTORE_SECONDS = 3600


def parser() -> argparse.ArgumentParser:
    home = pathlib.Path.home()
    options = argparse.ArgumentParser(
        prog="install.sh",
        description="Install or update agentsdock for this user.",
        epilog="Of install.sh itself: --archive FILE or --url URL (a release, else the tree "
        "beside install.sh), --public-key FILE, --sha256 HEX.",
    )
    add = options.add_argument
    add("--prefix", type=pathlib.Path, default=home / ".local/share/agentsdock")
    add("--state-dir", type=pathlib.Path, help="where the server keeps everything [~/.agentsdock]")
    add("--bind", help="address to listen on [127.0.0.1]")
    add("--port", type=int, help=f"[{DEFAULT_PORT}, or a free one nearby]")
    add("--no-service", action="store_true", help="check the server, but do not keep it running")
    add("--non-interactive", action="store_true", help="ask nothing")
    add("--dry-run", action="store_true", help="say what would be done, and change nothing")
    add("--show-token", action="store_true", help="print the token at the end")
    add("--rollback", action="store_true", help="back to the release before this one")
    add("--with-snapshot", action="store_true", help="with --rollback: its data of then, too")
    add("--health-seconds", type=float, default=300, help="longest that a start may take [300]")
    add("--trust-key", type=pathlib.Path, help=argparse.SUPPRESS)
    return options


class Installer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.prefix = Prefix(options.prefix.expanduser().absolute())
        self.settings = self.prefix.settings()
        state = options.state_dir or self.settings.get("AGENTSDOCK_STATE_DIR", "~/.agentsdock")
        self.state = State(pathlib.Path(state).expanduser().absolute())
        self.unchanged = True
        """Nothing that a running server would have to be started anew for."""
        self.service: Service = choose(self.prefix, managed=not options.no_service)

    # -- what is to be done

    def run(self) -> None:
        """Raises InstallError, SourceError, OSError."""
        self._refuse_what_cannot_be()
        release = None if self.options.rollback else self._release()
        self.service.preflight()
        self._refuse_a_foreign_server()
        self._plan(release)
        if self.options.dry_run:
            say("dry run: nothing was changed")
            return
        self._ask()
        self.prefix.prepare()
        with self.prefix.locked():
            if release is None:
                self._roll_back()
            else:
                self._install(release)
        self._tell()

    def _refuse_what_cannot_be(self) -> None:
        if RUN_MARKER in os.environ:
            raise InstallError(
                "this is a turn of an agent: the update would end the server that runs it, and "
                "itself.  Run it from a shell of your own."
            )
        self.prefix.refuse_foreign()
        self.state.refuse_unusable()
        if self.prefix.root == self.state.root or self.prefix.root in self.state.root.parents:
            raise InstallError("the state folder must not lie in the prefix, which is removable")

    def _refuse_a_foreign_server(self) -> None:
        """One that we did not start and could not start again."""
        pid = self.state.user()
        if pid and pid != self._trial() and not self.service.alive():
            raise InstallError(f"process {pid} serves {self.state.root}: stop it first")

    def _trial(self) -> str | None:
        """The server that a killed run has left."""
        try:
            return self.prefix.trial_file.read_text()
        except OSError:
            return None

    def _end_trial(self) -> None:
        pid = self._trial()
        if pid is None:
            return
        deadline = time.monotonic() + STOP_SECONDS
        while self.state.user() == pid:
            if time.monotonic() > deadline:
                raise InstallError(f"process {pid} does not end: it serves {self.state.root}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
            time.sleep(0.2)
        self.prefix.trial_file.unlink(missing_ok=True)

    def _release(self) -> Release:
        release = release_of(SOURCE)
        require(SOURCE, release)
        current = self.prefix.release("current")
        if current and order(release.version) < order(current.version):
            raise InstallError(
                f"{current.version} is installed and {release.version} is older: the older "
                "program might not read the data of the newer one.  --rollback leads back to "
                "the release before."
            )
        return release

    def _plan(self, release: Release | None) -> None:
        current = self.prefix.release("current")
        wanted = release.version if release else "the previous release"
        say(f"agentsdock {wanted} (now: {current.version if current else 'not installed'})")
        say(f"  prefix   {self.prefix.root}")
        say(f"  state    {self.state.root}")
        say(f"  address  {self._wanted_address()}")
        say(f"  service  {self.service.name}")
        with contextlib.suppress(OSError, ValueError):
            found = health(self._address(), self.state.token(self.settings))
            if found.get("active_count") and found.get("state_dir") == str(self.state.root):
                say(f"  turns    {found['active_count']} running: they end as server_shutdown")

    def _ask(self) -> None:
        if self.options.non_interactive or not sys.stdin.isatty():
            return
        try:
            agreed = input("Go on? [Y/n] ").strip().lower() in ("", "y", "yes")
        except EOFError:
            agreed = False
        if not agreed:
            raise InstallError("nothing was changed")

    def _wanted_address(self) -> Address:
        """By option, else as it was, else the usual."""
        address = self._address()
        return Address(self.options.bind or address.bind, self.options.port or address.port)

    def _address(self) -> Address:
        """What the settings say: those of the release that is started."""
        bind = self.settings.get("AGENTSDOCK_AGENT_BIND", "127.0.0.1")
        port = self.settings.get("AGENTSDOCK_AGENT_PORT", str(DEFAULT_PORT))
        if not port.isdecimal():
            raise InstallError(f"AGENTSDOCK_AGENT_PORT is {port!r}, which is no port")
        return Address(bind, int(port))

    # -- a release

    def _install(self, release: Release) -> None:
        wanted = self._settle()
        if not self._is_there(release):
            self._bring(release)
        installed = self.prefix.installed(release.id)
        assert installed is not None
        if self.options.trust_key and not self.prefix.key_file.exists():
            shutil.copyfile(self.options.trust_key, self.prefix.key_file)
        if self._is_running(installed):
            say("    it is there already")
        else:
            self._activate(installed, wanted)
        self.prefix.tidy()

    def _is_running(self, release: Installed) -> bool:
        if not self.unchanged or self.prefix.begun() or self.prefix.release("current") != release:
            return False
        if isinstance(self.service, Unmanaged):
            return True
        token = self.state.token(self.settings)
        expected = {"server_version": release.version, "state_dir": str(self.state.root)}
        return self.service.alive() and unhealthy(self._address(), token, expected) is None

    def _is_there(self, release: Release) -> bool:
        """Whether the release was brought before, undamaged, for the Python of today."""
        installed = self.prefix.installed(release.id)
        if installed is None:
            return False
        try:
            require(self.prefix.release_dir(release.id), release)
        except SourceError as error:
            say(f"    the installed copy is put right: {error}")
            return False
        key = environments.key_of(SOURCE)
        return installed.environment == key and self.prefix.environment_dir(key).is_dir()

    def _bring(self, release: Release) -> None:
        self.unchanged = False
        say("==> packages")
        environment = environments.provide(self.prefix, SOURCE)
        say("==> files")
        staging = environments.stage(self.prefix, SOURCE, release, environment)
        require(staging, release)
        say("==> check")
        known = json.loads(environments.check(staging))
        Installed(release.id, release.version, known["schema"], environment).write(staging)
        target, damaged = self.prefix.release_dir(release.id), self.prefix.release_dir(".damaged")
        remove(damaged)
        if target.exists():
            target.rename(damaged)
        staging.rename(target)

    def _settle(self) -> dict[str, str]:
        """The settings as they should be: a port that is ours or free, the rest as told."""
        address = self._wanted_address()
        changed = str(address.port) != self.settings.get("AGENTSDOCK_AGENT_PORT")
        if changed and not is_free(address):
            free = nearby(address)
            hint = f"; {free.port} is free" if free else ""
            taken = f"port {address.port} is taken by {owner(address.port)}{hint}"
            if self.options.port or free is None:
                raise InstallError(taken)
            say(f"    {taken} and used")
            address = free
        wanted = {
            "AGENTSDOCK_STATE_DIR": str(self.state.root),
            "AGENTSDOCK_AGENT_BIND": address.bind,
            "AGENTSDOCK_AGENT_PORT": str(address.port),
        }
        if "PATH" not in self.settings:
            wanted["PATH"] = os.environ.get("PATH", os.defpath)
            say("    the service looks for agent CLIs where this shell does (PATH is kept)")
        self.unchanged = all(self.settings.get(name) == value for name, value in wanted.items())
        return wanted

    # -- from one release to another

    def _activate(
        self, new: Installed, wanted: Mapping[str, str], restore: pathlib.Path | None = None
    ) -> None:
        begun = self.prefix.begun()
        if begun:
            say("    an earlier run was cut off while it changed releases; going on from there")
        old = self.prefix.installed(str(begun["from"])) if begun else self.prefix.release("current")
        text = begun["settings"] if begun else self.prefix.settings_text()
        before = instance(self._address(), self.state.token(self.settings))
        self.prefix.begin({"from": old.id if old else None, "to": new.id, "settings": text})
        try:
            say("==> stop")
            self.service.stop()
            self._end_trial()
            if restore:
                self._restore(new, restore)
            self.prefix.change_settings(wanted)
            self.settings = self.prefix.settings()
            self.state.make_token(self.settings)
            self._start(new, before)
        except BaseException as error:
            self._put_back(old, text, error)
            raise
        if old and old.id != new.id:
            self.prefix.link("previous", old.id)
        self.prefix.done()
        if isinstance(self.service, Unmanaged):
            self.service.stop()

    def _start(self, release: Installed, before: str | None) -> None:
        address = self._address()
        if not is_free(address):
            raise InstallError(f"port {address.port} is held by {owner(address.port)}")
        if pid := self.state.user():
            raise InstallError(f"process {pid} uses {self.state.root}")
        say(f"==> start {release.version}")
        self.prefix.link("current", release.id)
        self.prefix.write_command()
        self.service.install()
        self.service.start()
        say("==> health")
        expected = {"server_version": release.version, "state_dir": str(self.state.root)}
        token = self.state.token(self.settings)
        seconds = self.options.health_seconds
        try:
            wait_healthy(address, token, expected, before, self.service.alive, seconds)
        except InstallError as error:
            said = self.service.log_tail()
            raise InstallError(f"{error}; its log ends:\n{said}") from None

    def _put_back(self, old: Installed | None, settings: str, reason: BaseException) -> None:
        """The state before: the old release with its settings and data, or no installation."""
        say(f"==> roll back: {reason or type(reason).__name__}")
        with _uninterrupted():
            self.service.stop()
            if old is None:
                self.service.remove()
                self.prefix.link("current", None)
                if not settings:
                    self.prefix.settings_file.unlink(missing_ok=True)
                self.prefix.done()
                say("    nothing is installed; the state is kept")
                return
            if self.state.schema() > old.schema:
                self._restore(old, self._snapshot(old))
            write_file(self.prefix.settings_file, settings, 0o600)
            self.settings = self.prefix.settings()
            try:
                self._start(old, None)
            except InstallError as error:
                say(f"    {old.version} is back in place, but does not answer: {error}")
            else:
                say(f"    {old.version} is back and answers")
            self.prefix.done()
            if isinstance(self.service, Unmanaged):
                self.service.stop()

    def _snapshot(self, release: Installed) -> pathlib.Path:
        found = self.state.snapshot(release.schema)
        if found is None:
            raise InstallError(
                f"the database has schema {self.state.schema()}, {release.version} knows "
                f"{release.schema}, and there is no snapshot to go back to: both are left as "
                "they are.  Install a newer release, or restore a backup."
            )
        return found

    def _restore(self, release: Installed, snapshot: pathlib.Path) -> None:
        say(f"==> restore {snapshot}")
        program = self.prefix.release_dir(release.id) / "venv/bin/agentsdock"
        words = [str(program), "restore", str(snapshot), "--state-dir", str(self.state.root)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=RESTORE_SECONDS)
        for line in (ended.stdout + ended.stderr).splitlines():
            say(f"    {line}")
        if ended.returncode:
            raise InstallError(f"the snapshot could not be restored: run {shlex.join(words)}")

    # -- back by hand

    def _roll_back(self) -> None:
        previous, current = self.prefix.release("previous"), self.prefix.release("current")
        if previous is None or current is None:
            raise InstallError("there is no previous release to go back to")
        snapshot = None
        if self.state.schema() > previous.schema:
            snapshot = self._snapshot(previous)
            if not self.options.with_snapshot:
                raise InstallError(
                    f"{previous.version} cannot read the data as it is now.  --with-snapshot "
                    f"goes back to {snapshot}; what came since is kept aside, but not shown."
                )
        self._activate(previous, {}, snapshot)

    # -- the end

    def _tell(self) -> None:
        current = self.prefix.release("current")
        address = self._address()
        assert current is not None
        self._link_command()
        say(f"agentsdock {current.version} is installed")
        if isinstance(self.service, Unmanaged):
            say(f"  start it  {self.prefix.command} serve")
        else:
            say(f"  answers   {address}")
        say(f"  command   {self.prefix.command}")
        say(f"  settings  {self.prefix.settings_file}")
        if self.options.show_token:
            say(f"  token     {self.state.token(self.settings)}")
        else:
            say(f"  token     {self.prefix.command} token show")

    def _link_command(self) -> None:
        """``agentsdock`` for the shell, unless the name is somebody else's."""
        link = pathlib.Path.home() / ".local/bin/agentsdock"
        with contextlib.suppress(OSError):
            link.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to(self.prefix.command)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second ctrl-C does not stop the way back."""
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A handler, and not SIG_IGN, which every program that is started would inherit.
    before = {kind: signal.signal(kind, lambda *_: None) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    options = parser().parse_args(words)
    try:
        Installer(options).run()
    except (InstallError, SourceError, ValueError) as error:
        sys.exit(f"agentsdock: {error}")
    except OSError as error:
        sys.exit(f"agentsdock: {in_words(error)}")
    except KeyboardInterrupt:
        sys.exit("agentsdock: interrupted; run it again")


if __name__ == "__main__":
    main()
