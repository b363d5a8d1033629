"""Recordings: what went in comes out, bounded, and as far as a torn file goes."""

import gzip
import os
import stat

import pytest
from scripted import report

from agentsdock.model.codes import Code
from agentsdock.turns.capsule import (
    MAGIC,
    MAX_FRAME_BYTES,
    CapsuleError,
    CapsuleWriter,
    compress,
    compressed_path,
    open_capsule,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "capsules" / "run_1.capsule"


def writer(path, *, max_bytes=1000_000, **options):
    ticks = iter(range(1000))
    return CapsuleWriter(
        path,
        backend="cursor",
        version="2026.10",
        argv=("agent", "-p"),
        resume_id=options.pop("resume_id", None),
        max_bytes=max_bytes,
        clock=lambda: float(next(ticks)),
    )


def record(path, *chunks, exit_code=0, killed=False, stderr="", **options):
    made = writer(path, **options)
    for chunk in chunks:
        made.stdout(chunk)
    made.close(report(exit_code, killed=killed), stderr)
    assert made.error is None
    return path


def read(path):
    with open_capsule(path) as capsule:
        chunks = list(capsule)
    return capsule, chunks


def test_what_went_in_comes_out_with_its_times(path):
    capsule, chunks = read(record(path, b"one\n", b"two\n", stderr="warn", exit_code=3))
    assert chunks == [(1.0, b"one\n"), (2.0, b"two\n")]
    assert (capsule.header.backend, capsule.header.version) == ("cursor", "2026.10")
    assert len(capsule.header.argv_hash) == 64
    assert (capsule.trailer.exit_code, capsule.trailer.killed) == (3, False)
    assert capsule.trailer.stderr_tail == "warn"
    assert not capsule.torn
    assert not capsule.cut


def test_other_arguments_have_another_hash(path, tmp_path):
    one, _ = read(record(path, b"x"))
    made = CapsuleWriter(
        tmp_path / "other", backend="c", version=None, argv=("b",), resume_id=None, max_bytes=9
    )
    made.close(report(), "")
    assert read(tmp_path / "other")[0].header.argv_hash != one.header.argv_hash


def test_every_chunk_is_in_the_file_as_soon_as_it_was_written(path):
    made = writer(path)
    made.stdout(b"one\n")
    capsule, chunks = read(path)
    assert [data for _, data in chunks] == [b"one\n"]
    assert capsule.torn
    made.close(None, "")


def test_nobody_else_may_read_it(path):
    record(path, b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(compress(path).stat().st_mode) == 0o600


def test_a_run_that_wrote_nothing_leaves_no_file_before_its_end(path):
    made = writer(path)
    assert not path.exists()
    made.close(report(1), "error")
    assert read(path)[0].trailer.exit_code == 1


def test_the_bound_cuts_and_says_so(path):
    capsule, chunks = read(record(path, b"12345", b"67890", b"more", max_bytes=8))
    assert b"".join(data for _, data in chunks) == b"12345678"
    assert capsule.cut
    assert capsule.trailer.cut_bytes == 6


def test_a_file_torn_anywhere_is_readable_up_to_the_tear(path):
    whole = record(path, b"one\n", b"two\n", b"three\n").read_bytes()
    lengths = set()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            capsule, chunks = read(path)
        except CapsuleError:
            lengths.add(-1)
            continue
        data = b"".join(data for _, data in chunks)
        assert b"one\ntwo\nthree\n".startswith(data)
        assert capsule.torn
        lengths.add(len(data))
    assert lengths == {-1, 0, 4, 8, 14}


def test_a_tail_of_zeroes_is_a_tear(path):
    record(path, b"one\n")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
        file.seek(0, os.SEEK_END)
        file.write(bytes(4096))
    capsule, chunks = read(path)
    assert [data for _, data in chunks] == [b"one\n"]
    assert capsule.torn
    assert capsule.trailer is None


def test_a_compressed_recording_is_found_and_read_under_its_old_path(path):
    plain = read(record(path, b"x" * 50_000, b"two"))[1]
    target = compress(path)
    assert target == compressed_path(path)
    assert target.stat().st_size < 2000
    assert list(path.parent.iterdir()) == [target]
    assert read(path)[1] == read(target)[1] == plain


def test_a_damaged_compressed_recording_is_read_up_to_the_damage(path):
    noise = os.urandom(200_000)
    target = compress(record(path, *[noise[i : i + 1000] for i in range(0, 200_000, 1000)]))
    target.write_bytes(target.read_bytes()[:100_000])
    capsule, chunks = read(path)
    assert noise.startswith(b"".join(data for _, data in chunks))
    assert 50 < len(chunks) < 200
    assert capsule.torn


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", MAGIC, MAGIC + b"Dxxxxxxxxxxxxxxxxxxx", b"\x1f\x8bxx"]
)
def test_what_is_no_capsule_is_refused(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CapsuleError), open_capsule(path):
        pass


def test_a_frame_that_claims_too_much_is_a_tear(path):
    record(path, b"one\n")
    data = path.read_bytes()
    at = data.index(b"one\n") - 4
    path.write_bytes(data[:at] + (MAX_FRAME_BYTES + 1).to_bytes(4, "big") + data[at + 4 :])
    capsule, chunks = read(path)
    assert chunks == []
    assert capsule.torn


def test_a_file_that_cannot_be_written_ends_the_recording_and_not_the_run(tmp_path):
    (tmp_path / "capsules").write_text("a file where the folder should be")
    made = writer(tmp_path / "capsules" / "run_1.capsule")
    made.stdout(b"one")
    made.stdout(b"two")
    made.close(report(), "")
    assert made.error


def test_a_recording_is_never_overwritten(path):
    record(path, b"first")
    made = writer(path)
    made.stdout(b"second")
    assert made.error
    assert read(path)[1][0][1] == b"first"


def test_the_ending_is_kept(path):
    made = writer(path, resume_id="chat-1")
    made.close(report(-15, killed=True), "", Code.STOPPED)
    capsule, _ = read(path)
    assert (capsule.trailer.code, capsule.trailer.killed) == (Code.STOPPED, True)
    assert capsule.header.resume_id == "chat-1"


def test_only_the_first_close_counts(path):
    made = writer(path)
    made.close(report(1), "first")
    made.close(report(2), "second")
    assert read(path)[0].trailer.exit_code == 1


def test_the_compressed_form_is_plain_gzip(path):
    raw = record(path, b"one\n").read_bytes()
    assert gzip.decompress(compress(path).read_bytes()) == raw
