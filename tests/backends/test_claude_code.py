import itertools
import pathlib

import pytest
from attrs import evolve
from scripted_cli import Cli, put

from agentsdock.backends.claude_code import SUPERVISED, ClaudeCode
from agentsdock.backends.protocol import Admitted, AttachedFile, Completed, TurnContext
from agentsdock.config import load
from agentsdock.model.sessions import CLAUDE_PERMISSION_MODES, ProviderBinding, Session
from agentsdock.streams.claude import ClaudeParser
from agentsdock.streams.neutral import ParserSpec

TEXTS = pathlib.Path(__file__).parents[2] / "fixtures" / "claude-cli"
CHAT = Session(id="sess_0", created_at="t", updated_at="t", backend="claude")
ADMITTED = Admitted("claude", "/opt/claude/2.1.332/claude", "2.1.332")
CONTEXT = TurnContext("sess_0", "run_0", "http://127.0.0.1:7850", "/state/manifest.json")
STREAM = ("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
ID = "1460fd12-ff39-49da-9a75-c84554e6d58f"


def told(name, exit_code=0):
    return Completed(exit_code, (TEXTS / name).read_text(), "")


HEALTHY = {"--version": told("version.txt"), "auth status": told("auth-status-api-key.txt")}


def backend(environ=None):
    return ClaudeCode(load(environ or {}))


async def diagnosed(environ, bin_dir, **answers):
    put(bin_dir, "claude")
    return await backend(environ).diagnose(Cli({"claude": {**HEALTHY, **answers}}))


def command(session=CHAT, prompt="hello", files=(), helpers=""):
    claude = backend()
    envelope = claude.compose(session, prompt, files, helpers)
    return claude.command(ADMITTED, session, envelope, CONTEXT)


def options(session):
    """What stands between the stream's options and the instructions."""
    argv = command(session).argv
    assert argv[1 : 1 + len(STREAM)] == STREAM
    return argv[1 + len(STREAM) : argv.index("--append-system-prompt")]


@pytest.mark.parametrize(
    "text,version", [("version.txt", "2.1.332"), ("version-2.1.197.txt", "2.1.197")]
)
@pytest.mark.parametrize("status", ["auth-status-api-key.txt", "auth-status-auth-token.txt"])
async def test_a_signed_in_release_is_ready(environ, bin_dir, text, version, status):
    found = await diagnosed(
        environ, bin_dir, **{"--version": told(text), "auth status": told(status)}
    )
    assert (found.status, found.version, found.authenticated) == ("ready", version, True)


@pytest.mark.parametrize(
    "text", ["auth-status-logged-out.txt", "auth-status-logged-out-2.1.197.txt"]
)
async def test_one_that_is_signed_out_says_which_command_signs_in(environ, bin_dir, text):
    found = await diagnosed(environ, bin_dir, **{"auth status": told(text, 1)})
    assert (found.status, found.installed, found.authenticated) == ("unauthenticated", True, False)
    assert "`claude auth login`" in found.action


async def test_the_command_to_sign_in_is_the_one_that_people_type(environ, bin_dir):
    (bin_dir / "claude").symlink_to(put(bin_dir / "versions", "2.1.332"))
    answers = {**HEALTHY, "auth status": told("auth-status-logged-out.txt", 1)}
    found = await backend(environ).diagnose(Cli({"2.1.332": answers}))
    assert "`claude auth login`" in found.action


@pytest.mark.parametrize(
    "answer",
    [
        told("auth-status-text.txt", 1),
        Completed(0, '{"loggedIn": "yes"}', ""),
        Completed(0, "[]", ""),
        Completed(0, "", ""),
        Completed(1, '{"loggedIn": true}', ""),
        Completed(None, "", "", timed_out=True),
    ],
    ids=["prose", "a word", "a list", "nothing", "true but status 1", "silence"],
)
async def test_an_unclear_answer_about_the_sign_in_is_an_error(environ, bin_dir, answer):
    found = await diagnosed(environ, bin_dir, **{"auth status": answer})
    assert (found.status, found.authenticated) == ("error", None)
    assert "`claude auth status`" in found.message


@pytest.mark.parametrize("text", ["2.1.332", "codex-cli 0.171.0", "claude, the compiler 2.1.0\n"])
async def test_another_program_of_that_name_is_never_run(environ, bin_dir, text):
    found = await diagnosed(environ, bin_dir, **{"--version": Completed(0, text, "")})
    assert found.status == "error"
    assert found.program is None
    assert text not in found.message


async def test_without_a_program_it_is_missing_and_says_how_to_get_it(environ):
    found = await backend(environ).diagnose(Cli())
    assert (found.status, found.installed) == ("missing", False)
    assert "npm install -g @anthropic-ai/claude-code" in found.action


def test_the_prompt_goes_through_stdin_whatever_it_is():
    for prompt in ("hello", "--help", "x" * 300_000, "\ud800"):
        ran = command(prompt=prompt)
        assert prompt not in ran.argv
        assert ran.stdin == prompt.encode("utf-8", "replace")


def test_instructions_have_their_own_channel_with_every_turn_and_are_not_shown():
    chat = evolve(CHAT, system_prompt="Be brief.", claude=ProviderBinding(session_id=ID))
    ran = command(chat)
    place = ran.argv.index("--append-system-prompt") + 1
    assert "Be brief." in ran.argv[place]
    assert b"Be brief." not in ran.stdin
    assert not any("Be brief." in word for word in ran.shown_argv)
    assert ran.shown_argv[0] == "claude"


def test_helpers_come_last_and_leave_the_cli_s_own_commands_alone():
    assert command(helpers="[helpers]").stdin == b"hello\n\n[helpers]"
    assert command(prompt="/compact now", helpers="[helpers]").stdin == b"/compact now"


def test_memory_comes_first_and_the_prompt_is_told_from_it():
    chat = evolve(CHAT, memory_seed="It was said.", memory_seed_used=False)
    text = command(chat).stdin.decode()
    assert text.index("It was said.") < text.index("[Current user prompt]\nhello")


def test_a_session_is_gone_on_with_and_a_fork_begins_with_its_parent_s():
    assert options(CHAT) == ()
    own = evolve(CHAT, claude=ProviderBinding(session_id=ID))
    assert options(own) == ("--resume", ID)
    assert options(evolve(own, fork_from="other")) == ("--resume", ID)
    assert options(evolve(CHAT, fork_from=ID)) == ("--resume", ID, "--fork-session")


@pytest.mark.parametrize("mode", CLAUDE_PERMISSION_MODES)
def test_each_mode_is_passed_on_as_it_is_and_nothing_else_allows_anything(mode):
    flags = options(evolve(CHAT, claude_permission_mode=mode, model="opus", effort="max"))
    asked = () if mode == "default" else ("--permission-mode", mode)
    assert flags == (*asked, "--model", "opus", "--effort", "max")
    assert "--dangerously-skip-permissions" not in command(CHAT).argv


def test_other_clis_policies_mean_nothing_to_it():
    for cursor, approval, sandbox in itertools.product(
        ("full_access", "plan"), ("never", "untrusted"), ("danger-full-access", "read-only")
    ):
        chat = evolve(
            CHAT,
            cursor_permission_mode=cursor,
            codex_approval_policy=approval,
            codex_sandbox_mode=sandbox,
        )
        assert options(chat) == ()


def test_attached_files_may_be_read_and_no_more():
    files = [AttachedFile(f"/state/files/{n}/a.txt", "a.txt", "text/plain") for n in (1, 2)]
    ran = command(files=files)
    rules = ran.argv[ran.argv.index("--allowedTools") + 1 :]
    assert rules == ("Read(//state/files/1/**)", "Read(//state/files/2/**)")
    assert b"/state/files/2/a.txt" in ran.stdin


def test_it_is_kept_from_going_on_after_its_turn_and_from_replacing_itself():
    ran = command()
    assert SUPERVISED.items() <= ran.env.items()
    assert not any(name.startswith("CLAUDECODE") for name in ran.env)
    assert ran.stop_signals == ("SIGINT", "SIGTERM")


def test_an_operator_s_own_choice_wins():
    claude = backend({"DISABLE_AUTOUPDATER": "0", "HOME": "/home/me"})
    ran = claude.command(ADMITTED, CHAT, claude.compose(CHAT, "hi"), CONTEXT)
    assert ran.env["DISABLE_AUTOUPDATER"] == "0"


def test_its_parser_knows_the_resumed_id():
    assert isinstance(backend().parser(ParserSpec(ID)), ClaudeParser)
