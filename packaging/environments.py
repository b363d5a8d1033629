"""The Python packages of a release, and its own small environment on top of them.

Packages are installed from the lock file, by hash, once for each lock file and Python, and
shared by the releases that name them: most updates download nothing.
"""

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import venv

from prefix import InstallError, Prefix, remove, say
from runtime_manifest import Release

WITHOUT_BYTECODE = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
PIP_SECONDS = 900
HEARTBEAT_SECONDS = 10
CHECK_SECONDS = 300


def key_of(source: pathlib.Path) -> str:
    lock = hashlib.sha256((source / "requirements.lock").read_bytes()).hexdigest()[:12]
    return f"{lock}-py{sys.version_info.major}.{sys.version_info.minor}"


def provide(prefix: Prefix, source: pathlib.Path) -> str:
    """The packages that a source asks for, installed unless they are there; their key.

    Raises InstallError; what is half installed does not get the name.
    """
    key = key_of(source)
    target = prefix.environment_dir(key)
    if target.exists():
        return key
    staging = prefix.environment_dir(".staging")
    remove(staging)
    venv.create(staging, with_pip=True, symlinks=True)
    words = [str(_python(staging)), "-m", "pip", "install", "--disable-pip-version-check"]
    words += ["--no-input", "--progress-bar=off", "--require-hashes"]
    if WITHOUT_BYTECODE:
        words.append("--no-compile")
    _bounded([*words, "-r", str(source / "requirements.lock")], staging / "pip.log")
    staging.rename(target)
    return key


def _bounded(words: list[str], log: pathlib.Path) -> None:
    """Run pip with an end and signs of life.  Raises InstallError with what it said last."""
    began = told = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            while process.poll() is None:
                now = time.monotonic()
                if now - began > PIP_SECONDS:
                    raise InstallError(f"the packages were not installed within {PIP_SECONDS} s")
                if now - told > HEARTBEAT_SECONDS:
                    told = now
                    say(f"    still installing packages ({now - began:.0f} s)")
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        said = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        raise InstallError(f"the packages could not be installed; pip said:\n{said}")


def stage(prefix: Prefix, source: pathlib.Path, release: Release, environment: str) -> pathlib.Path:
    """Copy a source's runtime files into a folder with a Python of its own; not yet active."""
    staging = prefix.release_dir(".staging")
    remove(staging)
    for path in release.digests:
        target = staging / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target)
        target.chmod(0o755 if path.endswith(".sh") else 0o644)
    (staging / "MANIFEST").write_text(release.text, encoding="utf-8")
    (staging / "VERSION").write_text(f"{release.version}\n")
    venv.create(staging / "venv", with_pip=False, symlinks=True)
    _join(staging, prefix.environment_dir(environment))
    _write_programs(staging)
    return staging


def check(staging: pathlib.Path) -> str:
    """Compile and import everything, by the release's own Python; what it printed.

    Raises InstallError that names the modules.
    """
    if not WITHOUT_BYTECODE:
        compiling = [str(_python(staging / "venv")), "-m", "compileall", "-q"]
        _run([*compiling, str(staging / "agentsdock")], "compiled")
    checking = [str(_python(staging / "venv")), "-P", "-B"]
    return _run([*checking, str(staging / "packaging/check_release.py"), str(staging)], "imported")


def _run(words: list[str], what: str) -> str:
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        raise InstallError(f"the new release was not {what} in {CHECK_SECONDS} s") from None
    if ended.returncode:
        said = (ended.stdout + ended.stderr).strip()
        raise InstallError(f"the new release cannot be {what}:\n{said}")
    return ended.stdout


def _python(environment: pathlib.Path) -> pathlib.Path:
    return environment / "bin/python"


def _site(environment: pathlib.Path) -> pathlib.Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def _join(release: pathlib.Path, environment: pathlib.Path) -> None:
    """Let the release's Python find its own code, then the shared packages.

    By relative paths: they hold when the folder gets its name, whatever its letters.
    """
    site = _site(release / "venv")
    lines = [os.path.relpath(place, site) for place in (release, _site(environment))]
    (site / "agentsdock.pth").write_text("\n".join(lines) + "\n")


def _write_programs(release: pathlib.Path) -> None:
    """The commands of the package, where a server looks for its helpers."""
    project = tomllib.loads((release / "pyproject.toml").read_text(encoding="utf-8"))
    for name, place in project["project"]["scripts"].items():
        module, _, function = place.partition(":")
        call = f"import sys; sys.argv[0] = {name!r}; from {module} import {function} as main"
        call += "; sys.exit(main())"
        text = f'#!/bin/sh\nexec "$(dirname -- "$0")/python" -P -c {shlex.quote(call)} "$@"\n'
        program = release / "venv/bin" / name
        program.write_text(text)
        program.chmod(0o755)
