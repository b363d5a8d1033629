#!/bin/sh
# Installs or updates agentsdock for the user who runs it; no root.
#
#   install.sh [--archive FILE | --url URL] [--public-key FILE] [--sha256 HEX] [options]
#
# Without an archive it installs the tree that it lies in: an unpacked release or a checkout.
# The prefix is --prefix, else that of the installation that it lies in, else the usual one.
# Nothing of an archive is executed, and it is not unpacked, before its signature or its SHA-256
# was found right.  The options are those of packaging/install.py: see --help.
set -eu
unset CDPATH
umask 022

DOWNLOAD_SECONDS=900
DOWNLOAD_BYTES=200000000
HEARTBEAT_SECONDS=10

say() { printf '%s\n' "$*"; }

fail() {
    printf 'agentsdock: %s\n' "$*" >&2
    exit 1
}

# remedy DEBIAN-PACKAGES FEDORA-PACKAGES HOMEBREW-PACKAGES: the command that would help here.
remedy() {
    if command -v apt-get >/dev/null 2>&1; then say "sudo apt-get install $1"
    elif command -v dnf >/dev/null 2>&1; then say "sudo dnf install $2"
    elif command -v brew >/dev/null 2>&1; then say "brew install $3"
    else say "install $1 with your package manager"; fi
}

need() {
    command -v "$1" >/dev/null 2>&1 || fail "$1 is missing: $(remedy "$2" "$3" "$4")"
}

find_python() {
    for python in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$python" -c 'import ensurepip, venv' 2>/dev/null ||
                fail "$python has no venv: $(remedy python3-venv python3 python)"
            return
        fi
    done
    fail "Python 3.11 or newer is missing: $(remedy 'python3 python3-venv' python3.11 python)"
}

# Signs of life on stdout while a command runs; its status is ours.
with_heartbeat() {
    what=$1
    shift
    "$@" &
    worker=$!
    waited=0
    while kill -0 "$worker" 2>/dev/null; do
        sleep 1
        waited=$((waited + 1))
        [ $((waited % HEARTBEAT_SECONDS)) -ne 0 ] || say "    still $what ($waited s)"
    done
    wait "$worker"
}

download() {
    curl --fail --silent --show-error --location --connect-timeout 20 \
        --max-time "$DOWNLOAD_SECONDS" --max-filesize "$DOWNLOAD_BYTES" --retry 2 \
        --output "$2" -- "$1"
}

fetch() {
    need curl curl curl curl
    say "==> download $url"
    archive=$work/${url##*/}
    with_heartbeat downloading download "$url" "$archive" || fail "$url could not be downloaded"
    [ -z "$key" ] || download "$url.sig" "$archive.sig" || fail "$url.sig could not be downloaded"
}

# Which key signs releases: the one that was given, and from then on always that one.
settle_key() {
    pinned=$prefix/release-key.pem
    [ -f "$pinned" ] || return 0
    if [ -n "$key" ] && ! cmp -s "$key" "$pinned"; then
        fail "$key is not the key of this installation, $pinned: remove that to trust another"
    fi
    key=$pinned
}

verify() {
    say "==> verify"
    [ -n "$key$sha256" ] ||
        fail "say what to trust: --public-key FILE (releases are signed) or --sha256 HEX"
    if [ -n "$sha256" ]; then
        found=$("$python" -c 'import hashlib, sys
with open(sys.argv[1], "rb") as file:
    print(hashlib.file_digest(file, "sha256").hexdigest())' "$archive")
        [ "$found" = "$sha256" ] || fail "$archive has the SHA-256 $found, not $sha256"
    fi
    [ -z "$key" ] || verify_signature
}

verify_signature() {
    need openssl openssl openssl openssl
    [ -f "$archive.sig" ] || fail "$archive.sig is missing: releases are signed with $key"
    openssl pkeyutl -verify -pubin -inkey "$key" -rawin -in "$archive" -sigfile "$archive.sig" \
        >/dev/null 2>"$work/openssl" ||
        fail "the signature of $archive is wrong (or openssl is older than 3): $(cat "$work/openssl")"
}

# Regular files below one folder, and nothing else: no links, no absolute paths, no way up.
unpack() {
    say "==> unpack"
    "$python" - "$archive" "$work/tree" <<'PROGRAM' || fail "$archive is not unpacked"
import pathlib, sys, tarfile

MOST_BYTES, MOST_FILES = 200_000_000, 20_000
archive, target = sys.argv[1], pathlib.Path(sys.argv[2])
tops, seen, size = set(), set(), 0
try:
    with tarfile.open(archive, "r:gz") as packed:
        for member in packed:
            parts = pathlib.PurePosixPath(member.name).parts
            size += member.size
            if not member.isreg():
                sys.exit(f"not a regular file: {member.name}")
            if member.name.startswith("/") or ".." in parts or len(parts) < 2 or parts in seen:
                sys.exit(f"not a name of a release: {member.name}")
            tops.add(parts[0])
            seen.add(parts)
            if size > MOST_BYTES or len(seen) > MOST_FILES or len(tops) > 1:
                sys.exit("more than a release holds")
            path = target.joinpath(*parts[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                file.write(packed.extractfile(member).read())
except (tarfile.TarError, EOFError, OSError, ValueError) as error:
    sys.exit(f"not a whole archive: {error}")
PROGRAM
    tree=$work/tree
    [ -f "$tree/MANIFEST" ] || fail "$archive holds no MANIFEST"
    [ -f "$tree/packaging/install.py" ] || fail "$archive holds no packaging/install.py"
}

archive=''
url=''
key=''
sha256=''
tree=$(cd -P "$(dirname -- "$0")" && pwd -P)
prefix=$(dirname -- "$(dirname -- "$tree")")
[ -f "$prefix/.agentsdock" ] || prefix=$HOME/.local/share/agentsdock

# Takes our own options out of "$@"; the others, in their order, go on to install.py.
count=$#
while [ "$count" -gt 0 ]; do
    option=$1
    shift
    count=$((count - 1))
    case $option in
        --archive=* | --url=* | --public-key=* | --sha256=* | --prefix=*)
            given=${option#*=} option=${option%%=*} ;;
        --archive | --url | --public-key | --sha256 | --prefix)
            [ "$count" -gt 0 ] || fail "$option needs a value"
            given=$1
            shift
            count=$((count - 1)) ;;
    esac
    case $option in
        --archive) archive=$given ;;
        --url) url=$given ;;
        --public-key) key=$given ;;
        --sha256) sha256=$given ;;
        --prefix) prefix=$given ;;
        *) set -- "$@" "$option" ;;
    esac
done

find_python
work=$(mktemp -d "${TMPDIR:-/tmp}/agentsdock-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
[ -z "$key" ] || [ -f "$key" ] || fail "there is no $key"
settle_key
[ -z "$url" ] || fetch
if [ -n "$archive" ]; then
    [ -f "$archive" ] || fail "there is no $archive"
    verify
    unpack
    [ -z "$key" ] || set -- "$@" --trust-key "$key"
fi
[ -f "$tree/MANIFEST" ] || need git git git git
"$python" -B -s "$tree/packaging/install.py" --prefix "$prefix" "$@"
