import os
import pathlib

import pytest
from attrs import evolve
from scripted_cli import HEALTHY, Cli, client, playing, printed, put, run_really, said

from agentsdock.backends.protocol import Completed

LEGACY = {
    "--help": printed("help-legacy-2025.txt"),
    "--version": printed("version-2025.txt"),
}
GROK = {
    **HEALTHY,
    "about": Completed(0, "About Grok CLI\n\nCLI Version  2026.01.01-grok\n", ""),
}
NO_START = Completed(None, "", "[Errno 8] Exec format error: '/opt/somewhere/cursor-agent'")
TOO_LATE = Completed(None, "", "", timed_out=True)


async def diagnose(environ, answers):
    cli = Cli({name: dict(told) for name, told in answers.items()})
    return await client(environ).diagnose(cli), cli


def public_text(diagnostic):
    return repr(diagnostic.public())


async def test_a_signed_in_compatible_cli_is_ready(environ, bin_dir):
    program = put(bin_dir, "cursor-agent")
    found, cli = await diagnose(environ, {"cursor-agent": HEALTHY})
    assert found.public() == {
        "backend": "cursor",
        "status": "ready",
        "available": True,
        "installed": True,
        "authenticated": True,
        "version": "2026.09.30-1a2b3c4",
        "message": found.message,
        "action": None,
        "checked_at": found.checked_at,
        "last_error": None,
        "last_error_at": None,
    }
    assert found.program.path == str(program.resolve())
    assert cli.asked == ["--help", "about", "--version", "status"]


async def test_nothing_installed_is_missing_and_nothing_is_run(environ):
    found, cli = await diagnose(environ, {})
    assert (found.status, found.installed, found.authenticated) == ("missing", False, False)
    assert "cursor.com/install" in found.action
    assert "Recheck CLIs" in found.action
    assert "restart" not in found.action.lower()
    assert cli.calls == []


async def test_cursor_agent_is_preferred_to_agent(environ, bin_dir):
    put(bin_dir, "agent")
    put(bin_dir, "cursor-agent")
    found, _ = await diagnose(environ, {"cursor-agent": HEALTHY, "agent": HEALTHY})
    assert found.program.name == "cursor-agent"


async def test_an_old_build_does_not_shadow_a_later_compatible_one(environ, bin_dir):
    put(bin_dir, "cursor-agent")
    put(bin_dir, "agent")
    found, _ = await diagnose(environ, {"cursor-agent": LEGACY, "agent": HEALTHY})
    assert found.status == "ready"
    assert found.program.name == "agent"


@pytest.mark.parametrize(
    "fixture,missing",
    [
        ("help-incompatible-no-trust.txt", ["--trust"]),
        ("help-legacy-2025.txt", ["--trust", "plan mode", "a model listing"]),
        ("help-mentions-only.txt", ["--trust"]),
        ("help-no-stream-json.txt", ["stream-json"]),
        ("help-no-plan-mode.txt", ["plan mode"]),
        ("help-other-program.txt", ["--output-format", "--trust"]),
        ("help-ide-launcher.txt", ["--output-format", "--trust"]),
    ],
)
async def test_an_incompatible_build_is_an_error_that_names_what_it_lacks(
    environ, bin_dir, fixture, missing
):
    put(bin_dir, "cursor-agent")
    answers = {"--help": printed(fixture), "--version": printed("version-2025.txt")}
    found, cli = await diagnose(environ, {"cursor-agent": answers})
    assert (found.status, found.installed, found.authenticated) == ("error", True, None)
    assert "2025.09.18-0c1d2e3" in found.message
    assert found.version == "2025.09.18-0c1d2e3"
    for name in missing:
        assert name in found.message
    for command in ("--version", "status", "--list-models", "update"):
        assert f"`cursor-agent {command}`" in found.action
    assert found.program is None
    assert cli.asked == ["--help", "--version"]


async def test_a_build_that_crashes_is_an_error_that_tells_why(environ, bin_dir):
    put(bin_dir, "cursor-agent")
    crash = {"--help": printed("help-crash.txt", 1, "stderr")}
    found, _ = await diagnose(environ, {"cursor-agent": crash})
    assert (found.status, found.installed) == ("error", True)
    assert "status 1" in found.message
    assert "Failed to load native binding" in found.message


@pytest.mark.parametrize(
    "answer,words", [(NO_START, "could not be started"), (TOO_LATE, "within 6 s")]
)
async def test_a_program_that_does_not_answer_is_an_error_without_its_path(
    environ, bin_dir, answer, words
):
    put(bin_dir, "cursor-agent")
    found, _ = await diagnose(environ, {"cursor-agent": {"--help": answer}})
    assert found.status == "error"
    assert words in found.message
    assert "/" not in found.message.replace("<path>", "")


async def test_another_vendors_agent_is_refused_and_not_named(environ, bin_dir):
    put(bin_dir, "agent")
    found, cli = await diagnose(environ, {"agent": GROK})
    assert (found.status, found.installed, found.authenticated) == ("error", True, None)
    assert "grok" not in public_text(found).lower()
    assert cli.asked == ["--help", "about"]


async def test_another_vendors_agent_does_not_shadow_the_real_one(environ, bin_dir):
    put(bin_dir, "cursor-agent")
    put(bin_dir, "agent")
    found, _ = await diagnose(environ, {"cursor-agent": GROK, "agent": HEALTHY})
    assert found.program.name == "agent"


async def test_about_must_succeed_too(environ, bin_dir):
    put(bin_dir, "agent")
    answers = {**HEALTHY, "about": printed("about.txt", exit_code=1)}
    found, _ = await diagnose(environ, {"agent": answers})
    assert found.status == "error"


async def test_the_first_installed_one_explains_when_none_is_compatible(environ, bin_dir):
    put(bin_dir, "cursor-agent")
    put(bin_dir, "agent")
    found, _ = await diagnose(environ, {"cursor-agent": LEGACY, "agent": GROK})
    assert "plan mode" in found.message


async def test_a_configured_program_is_the_only_candidate(environ, bin_dir):
    put(bin_dir, "agent")
    chosen = put(bin_dir / "other", "my-agent")
    answers = {"my-agent": LEGACY, "agent": HEALTHY}
    found, _ = await diagnose({**environ, "CURSOR_BIN": str(chosen)}, answers)
    assert found.status == "error"
    assert "my-agent" in found.message

    found, cli = await diagnose({**environ, "CURSOR_BIN": str(bin_dir / "gone")}, answers)
    assert found.status == "missing"
    assert cli.calls == []

    found, _ = await diagnose({**environ, "CURSOR_BIN": "agent"}, answers)
    assert found.status == "ready"


async def test_a_file_that_is_not_executable_is_missing(environ, bin_dir):
    put(bin_dir, "cursor-agent").chmod(0o644)
    found, _ = await diagnose(environ, {})
    assert found.status == "missing"


async def test_two_names_of_one_program_are_probed_once(environ, bin_dir):
    put(bin_dir, "agent")
    (bin_dir / "cursor-agent").symlink_to("agent")
    _, cli = await diagnose(environ, {"agent": LEGACY})
    assert cli.asked == ["--help", "--version"]


async def test_a_link_that_moves_during_the_probe_changes_nothing_of_it(environ, bin_dir):
    old = put(bin_dir / "versions" / "1", "cursor-agent")
    new = put(bin_dir / "versions" / "2", "cursor-agent")
    link = bin_dir / "cursor-agent"
    link.symlink_to(old)

    async def update(arguments):
        link.unlink()
        link.symlink_to(new)

    cli = Cli({"cursor-agent": dict(HEALTHY)}, before=update)
    found = await client(environ).diagnose(cli)
    assert found.program.path == str(old)
    assert {call[0] for call in cli.calls} == {str(old)}


STATUS = [
    ("status-logged-in.txt", 0, "stdout", "ready", True),
    ("status-logged-in-ansi.txt", 0, "stdout", "ready", True),
    ("status-logged-in-name.txt", 0, "stdout", "ready", True),
    ("status-json-logged-in.txt", 0, "stdout", "ready", True),
    ("status-logged-in.txt", 0, "stderr", "ready", True),
    ("status-not-logged-in.txt", 0, "stdout", "unauthenticated", False),
    ("status-json-not-logged-in.txt", 0, "stdout", "unauthenticated", False),
    ("status-token-expired.txt", 0, "stdout", "unauthenticated", False),
    ("status-bad-key.txt", 1, "stderr", "unauthenticated", False),
    ("status-keychain-locked.txt", 1, "stderr", "error", None),
    ("status-unknown.txt", 0, "stdout", "error", None),
    ("status-logged-in.txt", 1, "stdout", "error", None),
]


@pytest.mark.parametrize("fixture,exit_code,stream,status,authenticated", STATUS)
async def test_the_clear_words_of_status_decide(
    environ, bin_dir, fixture, exit_code, stream, status, authenticated
):
    put(bin_dir, "agent")
    answers = {**HEALTHY, "status": printed(fixture, exit_code, stream)}
    found, _ = await diagnose(environ, {"agent": answers})
    assert (found.status, found.authenticated) == (status, authenticated)
    assert found.installed is True
    assert (found.action is None) is (status == "ready")
    for private in ("dev@example.invalid", "Robin", "purple"):
        assert private not in public_text(found)


async def test_a_locked_keychain_is_named_as_the_reason(environ, bin_dir):
    put(bin_dir, "agent")
    answers = {**HEALTHY, "status": printed("status-keychain-locked.txt", 1, "stderr")}
    found, _ = await diagnose(environ, {"agent": answers})
    assert "keychain is locked" in found.message


async def test_an_account_in_an_unclear_answer_stays_private(environ, bin_dir):
    put(bin_dir, "agent")
    told = Completed(2, "You are authenticated as dev@example.invalid", "")
    found, _ = await diagnose(environ, {"agent": {**HEALTHY, "status": told}})
    assert (found.status, found.authenticated) == ("error", None)
    assert "dev@" not in public_text(found)
    assert "status 2" in found.message
    assert "left out" in found.message


async def test_a_status_that_does_not_end_is_an_error(environ, bin_dir):
    put(bin_dir, "agent")
    found, _ = await diagnose(environ, {"agent": {**HEALTHY, "status": TOO_LATE}})
    assert found.status == "error"
    assert "within 6 s" in found.message


async def test_an_unauthenticated_cli_says_how_to_sign_in(environ, bin_dir):
    put(bin_dir, "agent")
    answers = {**HEALTHY, "status": printed("status-not-logged-in.txt")}
    found, _ = await diagnose(environ, {"agent": answers})
    assert "`agent login`" in found.action
    assert "`CURSOR_API_KEY`" in found.action


WITH_KEY = [
    (printed("list-models-free-plan.txt"), "ready"),
    (printed("list-models-empty.txt"), "ready"),
    (printed("list-models-unauthenticated.txt", 1, "stderr"), "unauthenticated"),
    (printed("status-bad-key.txt", 1, "stderr"), "unauthenticated"),
    (Completed(1, "", "getaddrinfo ENOTFOUND"), "error"),
    (TOO_LATE, "error"),
    (NO_START, "error"),
]


@pytest.mark.parametrize("answer,status", WITH_KEY)
async def test_a_key_is_checked_by_listing_the_models(environ, bin_dir, answer, status):
    put(bin_dir, "agent")
    answers = {**HEALTHY, "--list-models": answer}
    environ["CURSOR_API_KEY"] = "key_0123456789"
    found, cli = await diagnose(environ, {"agent": answers})
    assert found.status == status
    assert cli.asked[2:] == ["--version", "--list-models"]
    assert cli.environments[0]["CURSOR_API_KEY"] == "key_0123456789"
    assert "key_0123456789" not in public_text(found)


async def test_a_blank_key_is_no_key(environ, bin_dir):
    put(bin_dir, "agent")
    found, cli = await diagnose({**environ, "CURSOR_API_KEY": " "}, {"agent": HEALTHY})
    assert found.status == "ready"
    assert "CURSOR_API_KEY" not in cli.environments[0]
    assert cli.asked[-1] == "status"


@pytest.mark.parametrize("answer", [evolve(HEALTHY["--version"], exit_code=3), TOO_LATE, NO_START])
async def test_a_failing_version_is_an_error(environ, bin_dir, answer):
    put(bin_dir, "agent")
    found, cli = await diagnose(environ, {"agent": {**HEALTHY, "--version": answer}})
    assert (found.status, found.installed, found.authenticated) == ("error", True, None)
    assert found.version is None
    assert "--version" in found.message
    assert cli.asked == ["--help", "about", "--version"]


async def test_no_path_of_the_host_is_ever_public(environ, bin_dir, tmp_path):
    put(bin_dir, "agent")
    broken = Completed(1, "", f"cannot find {tmp_path}/secret-place")
    cases = [
        HEALTHY,
        LEGACY,
        GROK,
        {"--help": broken},
        {**HEALTHY, "--version": broken},
        {**HEALTHY, "status": broken},
    ]
    for answers in cases:
        found, _ = await diagnose(environ, {"agent": answers})
        assert str(tmp_path) not in public_text(found)
        assert "secret-place" not in public_text(found)


async def test_a_real_program_is_probed_as_a_scripted_one(environ, bin_dir, tmp_path):
    put(bin_dir, "cursor-agent", playing(LEGACY, tmp_path / "legacy"))
    healthy = {**HEALTHY, "--help": printed("help-compatible-ansi-crlf.txt")}
    put(bin_dir, "agent", playing(healthy, tmp_path / "healthy"))
    backend = client(environ)
    found = await backend.diagnose(run_really)
    assert (found.status, found.version) == ("ready", "2026.09.30-1a2b3c4")
    entry = await backend.models(run_really, found)
    assert entry["model_source"] == "agent --list-models"
    assert len(entry["models"]) == 5


async def test_a_real_file_that_is_no_program_is_an_error(environ, bin_dir):
    put(bin_dir, "cursor-agent", "\x00\x01not a program")
    found = await client(environ).diagnose(run_really)
    assert (found.status, found.installed) == ("error", True)
    assert str(bin_dir) not in public_text(found)


def test_every_help_fixture_is_in_a_table_of_these_tests():
    tables = pathlib.Path(__file__).read_text() + said("README.md")
    tables += (pathlib.Path(__file__).parent / "test_cursor_texts.py").read_text()
    for name in os.listdir(pathlib.Path(__file__).parents[2] / "fixtures" / "cursor-cli"):
        if name.startswith(("help-", "status-", "list-models-", "version", "about")):
            assert tables.count(name) >= 2, name
