"""What a snapshot tells of the files that an agent edited."""

import os
import random
import shutil
import subprocess

import pytest
import trio

from agentsdock.diffs import paths, snapshot
from agentsdock.diffs.git import NoDiff
from agentsdock.diffs.paths import Why

NUL = b"\0"


def listed(diff):
    return {change.path: (change.additions, change.deletions) for change in diff.changes}


async def test_edits_additions_and_deletions_are_counted_and_the_patch_applies(user, tmp_path):
    for name in ("edited.txt", "deleted.txt", "alone.txt"):
        user.write(name)
    user.commit()
    user.write("dirty.txt", "before the turn\n")
    copy = tmp_path / "copy"
    user.git("clone", "-q", str(user.repo), str(copy))
    (copy / "dirty.txt").write_text("before the turn\n")
    noted = await user.snapshot()
    user.write("edited.txt", "one\nTWO\nthree\n")
    (user.repo / "deleted.txt").unlink()
    user.write("sub/new.txt", "new\n")
    user.write("dirty.txt", "before the turn\nafter it\n")
    user.write("alone.txt", "somebody else's work\n")
    told = ["edited.txt", "deleted.txt", "sub/new.txt", str(user.repo / "dirty.txt")]
    diff = await noted.compare(told, str(user.repo))
    assert listed(diff) == {
        "edited.txt": (1, 1),
        "deleted.txt": (0, 3),
        "sub/new.txt": (1, 0),
        "dirty.txt": (1, 0),
    }
    assert diff.root == str(user.repo)
    assert sorted(diff.attributed) == sorted([*told[:3], "dirty.txt"])
    assert diff.left_out == {}
    assert diff.patch_bytes == len(diff.patch)
    subprocess.run(["git", "apply", "--check", "-"], cwd=copy, input=diff.patch, check=True)
    subprocess.run(["git", "apply", "-"], cwd=copy, input=diff.patch, check=True)
    assert (copy / "dirty.txt").read_text() == "before the turn\nafter it\n"


async def test_a_file_that_did_not_change_makes_no_diff(user):
    user.write("a.txt")
    user.commit()
    noted = await user.snapshot()
    user.write("a.txt")  # the same again
    assert await noted.compare(["a.txt", "never/there.txt"], str(user.repo)) is None
    assert await noted.compare([], str(user.repo)) is None


async def test_a_change_of_the_same_size_at_the_same_time_is_seen(user):
    path = user.write("a.txt", "aaaa")
    user.commit()
    user.write("a.txt", "bbbb")
    noted = await user.snapshot()
    before = path.stat()
    user.write("a.txt", "cccc")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    diff = await noted.compare(["a.txt"], str(user.repo))
    assert b"-bbbb" in diff.patch
    assert b"+cccc" in diff.patch


async def test_an_index_entry_that_its_user_had_no_time_to_trust_is_not_trusted(user):
    user.git("config", "core.trustctime", "false")  # what a test can set is the other time
    then = (10**18, 10**18)
    os.utime(user.write("a.txt", "aaaa"), ns=then)
    user.git("add", "a.txt")
    os.utime(user.write("a.txt", "bbbb"), ns=then)  # within the same tick as the index
    os.utime(user.repo / ".git/index", ns=then)
    noted = await user.snapshot()
    user.write("a.txt", "cccc")
    diff = await noted.compare(["a.txt"], str(user.repo))
    assert b"-bbbb" in diff.patch


NAMES = [
    "ä.txt",
    "x b/y",
    "tab\tname",
    "line\nname",
    'quo"te',
    "back\\slash",
    "-n",
    ":(glob)*",
    " ",
]


async def test_odd_names_are_listed_as_they_are_and_the_patch_applies(user, tmp_path):
    for name in NAMES:
        user.write(name)
    user.commit()
    copy = tmp_path / "copy"
    user.git("clone", "-q", str(user.repo), str(copy))
    noted = await user.snapshot()
    for name in NAMES:
        user.write(name, "one\n2\nthree\n")
    diff = await noted.compare(NAMES, str(user.repo))
    assert listed(diff) == dict.fromkeys(NAMES, (1, 1))
    subprocess.run(["git", "apply", "-"], cwd=copy, input=diff.patch, check=True)
    assert all((copy / name).read_text() == "one\n2\nthree\n" for name in NAMES)


async def test_a_name_that_is_no_unicode_is_shown_as_well_as_can_be(user):
    name = os.fsencode(user.repo) + b"/latin-\xe4.txt"
    user.write(name)
    user.commit()
    noted = await user.snapshot()
    user.write(name, "one\n")
    diff = await noted.compare([os.fsdecode(name)], str(user.repo))
    assert listed(diff) == {"latin-�.txt": (0, 2)}


async def test_a_rename_is_one_change_with_both_names(user):
    user.write("old.txt", "".join(f"line {n}\n" for n in range(20)))
    user.commit()
    noted = await user.snapshot()
    (user.repo / "old.txt").rename(user.repo / "ü new.txt")
    diff = await noted.compare(["old.txt", "ü new.txt"], str(user.repo))
    (change,) = diff.changes
    assert (change.old_path, change.path) == ("old.txt", "ü new.txt")
    assert (change.additions, change.deletions) == (0, 0)
    with (user.repo / "ü new.txt").open("a") as file:
        file.write("one more\n")
    (change,) = (await noted.compare(["old.txt", "ü new.txt"], str(user.repo))).changes
    assert (change.old_path, change.additions, change.deletions) == ("old.txt", 1, 0)


async def test_line_ends_modes_binaries_and_links_are_told_as_git_sees_them(user):
    user.write(".gitattributes", "*.txt text=auto eol=lf\n")
    user.write("crlf.txt", b"one\r\ntwo\r\nthree\r\n")
    user.write("image.png", bytes(range(256)))
    user.write("tool.sh", "#!/bin/sh\n")
    user.write("becomes-link", "content\n")
    user.commit()
    noted = await user.snapshot()
    user.write("crlf.txt", b"one\r\n2\r\nthree\r\n")
    user.write("image.png", bytes(range(255, -1, -1)))
    (user.repo / "tool.sh").chmod(0o755)
    (user.repo / "becomes-link").unlink()
    (user.repo / "becomes-link").symlink_to("/etc/passwd")
    told = ["crlf.txt", "image.png", "tool.sh", "becomes-link"]
    diff = await noted.compare(told, str(user.repo))
    found = listed(diff)
    assert found["crlf.txt"] == (1, 1)
    assert found["image.png"] == (None, None)
    assert found["tool.sh"] == (0, 0)
    assert found["becomes-link"] == (1, 1)
    assert [change.path for change in diff.changes if change.binary] == ["image.png"]
    assert b"old mode 100644\nnew mode 100755" in diff.patch
    assert b"root:" not in diff.patch, "a link is shown, not what it leads to"


async def test_a_large_patch_is_cut_and_its_true_size_told(user):
    user.write("big.txt", "")
    user.commit()
    noted = await user.snapshot()
    user.write("big.txt", "0123456789abcdef\n" * 1_800_000)
    diff = await noted.compare(["big.txt"], str(user.repo))
    assert listed(diff) == {"big.txt": (1_800_000, 0)}
    assert diff.cut
    assert len(diff.patch) < snapshot.PATCH_BYTES + 100
    assert diff.patch_bytes > 1_800_000 * 18
    assert diff.patch.endswith(b"[trimmed: the start of a patch of %d bytes]\n" % diff.patch_bytes)


async def test_a_repository_without_a_commit_has_diffs(user):
    user.write("there.txt")
    noted = await user.snapshot()
    user.write("there.txt", "one\n")
    user.write("new.txt")
    diff = await noted.compare(["there.txt", "new.txt"], str(user.repo))
    assert listed(diff) == {"there.txt": (0, 2), "new.txt": (3, 0)}


async def test_paths_that_are_not_the_repositorys_are_left_out_and_named(user):
    user.write("a.txt")
    user.write(".gitignore", "ignored/\n")
    user.commit()
    user.git("init", "-q", "empty")
    user.git("init", "-q", "nested")
    (user.repo / "nested/inner.txt").write_text("inner\n")
    user.git("add", "-A", cwd=user.repo / "nested")
    user.git("commit", "-q", "-m", "inner", cwd=user.repo / "nested")
    os.mkfifo(user.repo / "pipe")
    noted = await user.snapshot()
    user.write("a.txt", "one\n")
    for name in ("empty/x", "nested/inner.txt", "ignored/x", ".git/info/exclude"):
        user.write(name, "changed\n")
    outside = user.home / "outside.txt"
    outside.write_text("changed\n")
    told = ["a.txt", "empty/x", "nested/inner.txt", "ignored/x", "../outside.txt"]
    told += [".git/info/exclude", "pipe", "nested", "."]
    diff = await noted.compare(told, str(user.repo))
    assert listed(diff) == {"a.txt": (0, 2)}
    assert diff.attributed == ("a.txt",)
    assert diff.left_out == {
        "empty/x": Why.NESTED,
        "nested/inner.txt": Why.NESTED,
        "ignored/x": Why.IGNORED,
        str(outside): Why.OUTSIDE,
        ".git/info/exclude": Why.OUTSIDE,
        "pipe": Why.NO_FILE,
        "nested": Why.NO_FILE,
        str(user.repo): Why.OUTSIDE,
    }
    assert not user.git("diff", "--cached", "--name-only")


async def test_a_file_that_was_there_but_not_kept_is_never_shown_as_new(user, monkeypatch):
    monkeypatch.setattr(paths, "FILE_BYTES", 1000)
    monkeypatch.setattr(paths, "TOTAL_BYTES", 1500)
    user.write("large.txt", "x" * 1001)
    user.write("small.txt", "x" * 100)
    user.write("middle.txt", "x" * 900)
    user.write("too-many.txt", "x" * 950)
    noted = await user.snapshot()
    told = ["large.txt", "small.txt", "middle.txt", "too-many.txt"]
    for name in told:
        user.write(name, "short\n")
    diff = await noted.compare(told, str(user.repo))
    assert sorted(listed(diff)) == ["middle.txt", "small.txt"]
    assert diff.left_out == {"large.txt": Why.TOO_LARGE, "too-many.txt": Why.TOO_LARGE}


async def test_an_edit_through_a_linked_folder_is_found_where_it_is(user):
    user.write("real/a.txt")
    user.commit()
    (user.repo / "link").symlink_to("real")
    outside = user.home / "by-the-side"
    outside.symlink_to(user.repo)
    noted = await user.snapshot()
    user.write("real/a.txt", "one\n")
    diff = await noted.compare(["link/a.txt"], str(user.repo))
    assert listed(diff) == {"real/a.txt": (0, 2)}
    diff = await noted.compare([str(outside / "real/a.txt")], str(user.repo))
    assert listed(diff) == {"real/a.txt": (0, 2)}


async def test_paths_are_taken_from_the_folder_of_the_turn(user):
    user.write("sub/deep/a.txt")
    user.commit()
    cwd = user.repo / "sub/deep"
    noted = await user.snapshot(cwd)
    user.write("sub/deep/a.txt", "one\n")
    user.write("top.txt", "new\n")
    diff = await noted.compare(["a.txt", "../../top.txt", "./a.txt"], str(cwd))
    assert listed(diff) == {"sub/deep/a.txt": (0, 2), "top.txt": (1, 0)}


async def test_a_linked_work_tree_has_its_own_state(user):
    user.write("a.txt")
    user.commit()
    tree = user.home / "linked"
    user.git("worktree", "add", "-q", str(tree))
    (tree / "a.txt").write_text("the state before\n")
    noted = await user.snapshot(tree)
    (tree / "a.txt").write_text("the state after\n")
    diff = await noted.compare(["a.txt"], str(tree))
    assert diff.root == str(tree)
    assert b"-the state before\n+the state after" in diff.patch


async def test_a_submodule_is_a_repository_of_its_own(user):
    other = user.home / "other"
    user.git("init", "-q", str(other))
    (other / "x.txt").write_text("x\n")
    user.git("add", "-A", cwd=other)
    user.git("commit", "-q", "-m", "x", cwd=other)
    user.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "module")
    user.write("a.txt")
    user.commit()
    user.write("module/x.txt", "dirty\n")
    noted = await user.snapshot()
    user.write("module/x.txt", "edited\n")
    user.write("a.txt", "one\n")
    diff = await noted.compare(["a.txt", "module/x.txt"], str(user.repo))
    assert listed(diff) == {"a.txt": (0, 2)}
    assert diff.left_out == {"module/x.txt": Why.NESTED}
    noted = await user.snapshot(user.repo / "module")
    user.write("module/x.txt", "edited twice\n")
    diff = await noted.compare(["x.txt"], str(user.repo / "module"))
    assert diff.root == str(user.repo / "module")
    assert b"-edited\n+edited twice" in diff.patch


async def test_a_merge_with_conflicts_has_diffs(user):
    user.write("a.txt", "base\n")
    user.commit()
    user.git("checkout", "-q", "-b", "other")
    user.write("a.txt", "theirs\n")
    user.commit()
    user.git("checkout", "-q", "-")
    user.write("a.txt", "ours\n")
    user.commit()
    user.git("merge", "other", check=False)
    assert b"<<<<<<<" in (user.repo / "a.txt").read_bytes()
    noted = await user.snapshot()
    user.write("a.txt", "resolved\n")
    diff = await noted.compare(["a.txt"], str(user.repo))
    assert b"-<<<<<<<" in diff.patch
    assert b"+resolved" in diff.patch


@pytest.mark.parametrize("setting", ["index.version=4", "core.splitIndex=true"])
async def test_other_forms_of_the_index_are_read(user, setting):
    user.git("config", *setting.split("="))
    user.write("a.txt")
    user.write("b.txt")
    user.commit()
    user.write("b.txt", "two\n")
    user.git("add", "b.txt")
    noted = await user.snapshot()
    user.write("a.txt", "one\n")
    diff = await noted.compare(["a.txt", "b.txt"], str(user.repo))
    assert listed(diff) == {"a.txt": (0, 2)}


async def test_a_repository_of_longer_hashes_is_read(user):
    repo = user.home / "sha256"
    user.git("init", "-q", "--object-format=sha256", str(repo))
    (repo / "a.txt").write_text("one\n")
    user.git("add", "-A", cwd=repo)
    user.git("commit", "-q", "-m", "x", cwd=repo)
    noted = await user.snapshot(repo)
    (repo / "a.txt").write_text("two\n")
    assert listed(await noted.compare(["a.txt"], str(repo))) == {"a.txt": (1, 1)}


async def test_an_edit_where_a_sparse_checkout_has_no_files_is_no_deletion(user):
    user.write("in/a.txt")
    user.write("out/b.txt")
    user.commit()
    user.git("sparse-checkout", "set", "in")
    noted = await user.snapshot()
    user.write("in/a.txt", "one\n")
    diff = await noted.compare(["in/a.txt", "out/b.txt"], str(user.repo))
    assert listed(diff) == {"in/a.txt": (0, 2)}


async def test_a_file_that_a_user_put_where_a_sparse_checkout_has_none_counts(user):
    user.write("in/a.txt")
    user.write("out/b.txt")
    user.commit()
    user.git("sparse-checkout", "set", "in")
    user.write("out/b.txt", "by the user\n")
    noted = await user.snapshot()
    user.write("out/b.txt", "by the user\nand the agent\n")
    assert listed(await noted.compare(["out/b.txt"], str(user.repo))) == {"out/b.txt": (1, 0)}


async def test_a_file_may_become_a_folder_and_a_folder_a_file(user):
    user.write("file-then-folder")
    user.write("folder-then-file/x")
    user.commit()
    (user.repo / "file-then-folder").unlink()
    user.write("file-then-folder/x", "before the turn\n")
    noted = await user.snapshot()
    (user.repo / "folder-then-file/x").unlink()
    (user.repo / "folder-then-file").rmdir()
    user.write("folder-then-file", "a file\n")
    user.write("file-then-folder/x", "before the turn\nafter\n")
    told = ["folder-then-file/x", "folder-then-file", "file-then-folder/x"]
    diff = await noted.compare(told, str(user.repo))
    assert listed(diff) == {
        "file-then-folder/x": (1, 0),
        "folder-then-file": (1, 0),
        "folder-then-file/x": (0, 3),
    }


async def test_a_file_that_git_does_not_watch_is_left_out(user):
    for name in ("a.txt", "watched.txt"):
        user.write(name)
    user.commit()
    user.git("update-index", "--assume-unchanged", "a.txt")
    user.write("a.txt", "the user's own change\n")
    noted = await user.snapshot()
    user.write("a.txt", "the user's own change\nand the agent's\n")
    user.write("watched.txt", "one\n")
    diff = await noted.compare(["a.txt", "watched.txt"], str(user.repo))
    assert listed(diff) == {"watched.txt": (0, 2)}
    assert diff.left_out == {"a.txt": Why.ASSUMED}


async def test_a_file_that_is_only_meant_to_be_added_has_its_content(user):
    user.write("a.txt", "before\n")
    user.git("add", "-N", "a.txt")
    noted = await user.snapshot()
    user.write("a.txt", "before\nafter\n")
    assert listed(await noted.compare(["a.txt"], str(user.repo))) == {"a.txt": (1, 0)}


async def test_a_clone_that_shares_its_objects_in_a_folder_of_an_odd_name(user):
    user.write("a.txt")
    user.commit()
    odd = user.home / 'a "b"\n:c\\d;#e'
    user.git("clone", "-q", "--shared", str(user.repo), str(odd))
    noted = await user.snapshot(odd)
    (odd / "a.txt").write_text("one\n")
    diff = await noted.compare(["a.txt"], str(odd))
    assert listed(diff) == {"a.txt": (0, 2)}
    assert diff.root == str(odd)


async def test_ignore_files_of_the_user_and_of_the_repository_count(user):
    (user.home / ".config/git").mkdir(parents=True)
    (user.home / ".config/git/ignore").write_text("by-default\n")
    (user.home / "own").write_text("by-own-file\n")
    user.write(".git/info/exclude", "by-repository\n")
    told = ["by-default", "by-repository"]
    for name in (*told, "by-own-file"):
        user.write(name, "old\n")
    for excludes in (None, "~/own"):
        if excludes:
            user.git("config", "core.excludesFile", excludes)
            told = ["by-own-file", "by-repository"]
        noted = await user.snapshot()
        user.write("seen", f"{excludes}\n")
        for name in told:
            user.write(name, f"{excludes}\n")
        diff = await noted.compare([*told, "seen"], str(user.repo))
        assert [change.path for change in diff.changes] == ["seen"]
        assert diff.left_out == dict.fromkeys(told, Why.IGNORED)


@pytest.mark.parametrize("name", [".state", "s t [a]te*#", "ü"])
async def test_the_servers_own_folder_is_no_part_of_the_work(user, name):
    user.state = user.repo / "sub" / name
    user.state.mkdir(parents=True)
    (user.state / "token").write_text("secret\n")
    user.write("a.txt")
    noted = await user.snapshot()
    (user.state / "token").write_text("another secret\n")
    user.write("a.txt", "one\n")
    diff = await noted.compare(["a.txt", f"sub/{name}/token"], str(user.repo))
    assert listed(diff) == {"a.txt": (0, 2)}
    assert diff.left_out == {f"sub/{name}/token": Why.IGNORED}
    objects = [path for path in noted.folder.rglob("*") if len(path.name) == 38]
    assert len(objects) <= 5, "the file, once before and once after, and trees"


async def test_two_turns_in_one_repository_do_not_see_each_other(user):
    user.write("a.txt", "0\n")
    user.commit()
    first, second = await user.snapshot(), None
    user.write("a.txt", "1\n")
    second = await user.snapshot()
    user.write("a.txt", "2\n")
    found = {}

    async def compare(name, noted):
        found[name] = (await noted.compare(["a.txt"], str(user.repo))).patch

    async with trio.open_nursery() as nursery:
        nursery.start_soon(compare, "first", first)
        nursery.start_soon(compare, "second", second)
    assert b"-0\n+2\n" in found["first"]
    assert b"-1\n+2\n" in found["second"]


CONTENTS = [b"", b"one\n", b"one\ntwo", b"a\r\nb\r\n", "ä\n".encode(), b"\xff\xfe\n", b"x\n" * 300]


@pytest.mark.parametrize("seed", range(6))
async def test_the_patch_makes_of_the_state_before_what_was_there_afterwards(user, tmp_path, seed):
    chance = random.Random(seed)
    names = [f"{folder}{name}" for folder in ("", "d/", "d/e/") for name in ("a", "b c", "ü")]

    def change(name):
        path = user.repo / name
        match chance.randrange(4):
            case 0 if path.exists():
                path.unlink()
            case 1 if path.exists():
                path.chmod(chance.choice([0o644, 0o755]))
            case _:
                user.write(name, chance.choice(CONTENTS) + chance.choice(CONTENTS))

    for name in names:
        change(name)
    user.git("add", "-A")
    if chance.random() < 0.7:
        user.git("commit", "-q", "--allow-empty", "-m", "x")
    for name in chance.sample(names, 5):
        change(name)
    before = tmp_path / "before"
    shutil.copytree(user.repo, before, ignore=shutil.ignore_patterns(".git"))
    noted = await user.snapshot()
    for name in chance.sample(names, 6):
        change(name)
    diff = await noted.compare(names, str(user.repo))
    if diff is not None:
        subprocess.run(["git", "apply", "-"], cwd=before, input=diff.patch, check=True)
    assert state(before) == state(user.repo)


def state(folder):
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o111)
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


async def test_a_damaged_index_is_no_diff_with_a_reason(user):
    user.write("a.txt")
    user.commit()
    (user.repo / ".git/index").write_bytes(b"DIRC" + NUL * 100)
    with pytest.raises(NoDiff, match="failed in this repository"):
        await user.snapshot()


async def test_too_many_loose_files_are_no_diff_with_a_reason(user, monkeypatch):
    monkeypatch.setattr(snapshot, "LISTING_BYTES", 100)
    for number in range(20):
        user.write(f"file-{number}.txt")
    with pytest.raises(NoDiff, match="too many"):
        await user.snapshot()
