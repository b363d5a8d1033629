import os
import subprocess

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from scripted_cli import HEALTHY, Cli, client, put

from agentsdock.backends.cursor_agent_client import Features
from agentsdock.backends.cursor_texts import CommandLine
from agentsdock.backends.protocol import Admitted, AttachedFile, Envelope, TurnContext
from agentsdock.backends.registry import make_backends
from agentsdock.config import load
from agentsdock.model.errors import PromptTooLarge, TooLarge
from agentsdock.model.sessions import ProviderBinding, Session
from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import ParserSpec

CHAT = Session(id="sess_0", created_at="t", updated_at="t")
ADMITTED = Admitted("cursor", "/opt/cursor/versions/1/cursor-agent", "1", Features(CommandLine(())))
CONTEXT = TurnContext("sess_0", "run_0", "http://127.0.0.1:7850", "/state/manifest.json")
LIMIT = 131_071
STREAM = ("--output-format", "stream-json")


def envelope(prompt="hello"):
    return Envelope(prompt, "hash", "1", injected=False, used_memory=False)


def command(session=CHAT, prompt="hello", admitted=ADMITTED, environ=None):
    return client(environ or {}).command(admitted, session, envelope(prompt), CONTEXT)


def resumed(session_id):
    return evolve(CHAT, cursor=ProviderBinding(session_id=session_id))


def test_the_first_turn_prints_a_stream_of_a_trusted_workspace():
    assert command().argv == (ADMITTED.executable, "-p", "hello", *STREAM, "--trust")


def test_a_later_turn_resumes_the_session_of_this_cli():
    chat = evolve(resumed("chat-1"), claude=ProviderBinding(session_id="other"))
    assert command(chat).argv[3:] == (*STREAM, "--resume", "chat-1", "--trust")
    assert "--resume" not in command(resumed("")).argv


def test_a_model_is_passed_only_where_the_chat_has_one():
    chat = evolve(CHAT, model="composer-2.5", effort="high", cursor_permission_mode="full_access")
    assert command(chat).argv[3:] == (*STREAM, "--model", "composer-2.5", "--trust", "--force")
    assert "--model" not in command(evolve(CHAT, model="")).argv
    assert "high" not in command(chat).argv


@pytest.mark.parametrize(
    "mode,flags",
    [
        ("default", ("--trust",)),
        ("full_access", ("--trust", "--force")),
        ("plan", ("--trust", "--mode", "plan")),
        ("auto_review", ("--trust",)),
        ("", ("--trust",)),
    ],
)
def test_each_permission_mode_has_its_flags_and_all_trust(mode, flags):
    argv = command(evolve(CHAT, cursor_permission_mode=mode)).argv
    assert argv[3:] == (*STREAM, *flags)


async def test_the_spelling_that_the_probe_found_is_the_one_that_runs(environ, bin_dir):
    put(bin_dir, "agent")
    text = HEALTHY["--help"].stdout.replace('(choices: "plan", "ask")', '(choices: "ask")')
    text = text.replace("  -p, --print ", "  --print     ")
    cli = Cli({"agent": {**HEALTHY, "--help": evolve(HEALTHY["--help"], stdout=text)}})
    found = await client(environ).diagnose(cli)
    admitted = Admitted("cursor", found.program.path, found.version, found.features)
    argv = command(evolve(CHAT, cursor_permission_mode="plan"), admitted=admitted).argv
    assert argv == (found.program.path, "--print", "hello", *STREAM, "--trust", "--plan")


def test_what_is_shown_of_a_command_has_neither_prompt_nor_path():
    chat = evolve(resumed("chat-1"), model="m")
    made = command(chat, "a secret prompt")
    assert made.shown_argv == ("cursor-agent", "-p", "<prompt>", *made.argv[3:])
    assert "secret" not in repr(made.shown_argv)


def test_the_cli_gets_no_stdin_and_is_asked_to_stop_by_sigterm():
    made = command()
    assert made.stdin is None
    assert made.stop_signals == ("SIGTERM",)


KIB = 1024


@pytest.mark.parametrize(
    "prompt,fits",
    [
        ("x" * 127 * KIB, True),
        ("x" * LIMIT, True),
        ("x" * 128 * KIB, False),
        ("x" * 400 * KIB, False),
        ("€" * (127 * KIB // 3), True),
        ("€" * (128 * KIB // 3 + 1), False),
        ("€" * (400 * KIB // 3), False),
    ],
)
def test_a_prompt_is_refused_exactly_where_one_argument_ends(prompt, fits):
    if fits:
        assert command(prompt=prompt).argv[2] == prompt
        return
    with pytest.raises(PromptTooLarge) as refused:
        command(prompt=prompt)
    assert refused.value.detail()["size"] == len(prompt.encode())
    assert refused.value.detail()["limit"] == LIMIT


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the limit is that of Linux")
def test_the_limit_is_that_of_the_system():
    assert subprocess.run(["/bin/true", "x" * LIMIT], check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true", "x" * (LIMIT + 1)], check=False)


def test_the_users_own_part_is_measured_with_its_files():
    backend = client({})
    backend.check_prompt("x" * LIMIT)
    with pytest.raises(PromptTooLarge) as refused:
        backend.check_prompt("x" * LIMIT, [AttachedFile("/f", "f", "text/plain")])
    assert isinstance(refused.value, TooLarge)
    assert refused.value.status == 413
    detail = refused.value.detail()
    assert detail["code"] == "prompt_too_large"
    assert detail["size"] > LIMIT
    assert str(LIMIT) in detail["message"]


def test_instructions_count_when_the_turn_is_launched():
    backend = client({})
    prompt = "x" * (LIMIT - 100)
    backend.check_prompt(prompt)
    composed = backend.compose(CHAT, prompt)
    with pytest.raises(PromptTooLarge):
        backend.command(ADMITTED, CHAT, composed, CONTEXT)


@given(st.text(max_size=60))
def test_no_prompt_can_become_an_option(prompt):
    backend = client({})
    for text in (prompt, "--force", "-p", "--", "-"):
        made = backend.command(ADMITTED, CHAT, backend.compose(CHAT, text), CONTEXT)
        assert made.argv[2].startswith("[")
        assert made.argv[2].endswith(text)
        assert made.argv[3:] == (*STREAM, "--trust")


def test_the_registry_runs_three_clis_and_cursor_s_parser_knows_the_resumed_id():
    backends = make_backends(load({}))
    assert list(backends) == ["claude", "codex", "cursor"]
    assert isinstance(backends["cursor"].parser(ParserSpec("chat-1")), CursorParser)
