import itertools
import json
import pathlib
import tomllib

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from scripted_cli import Cli, put

from agentsdock.backends.codex_exec import CodexExec, sandbox
from agentsdock.backends.protocol import Admitted, Completed, Diagnostic, TurnContext
from agentsdock.config import load
from agentsdock.model.sessions import (
    CODEX_APPROVAL_POLICIES,
    CODEX_APPROVALS_REVIEWERS,
    CODEX_SANDBOX_MODES,
    ProviderBinding,
    Session,
)

TEXTS = pathlib.Path(__file__).parents[2] / "fixtures" / "codex-cli"
CHAT = Session(id="sess_0", created_at="t", updated_at="t", backend="codex")
ADMITTED = Admitted("codex", "/opt/codex/bin/codex", "0.171.0")
CONTEXT = TurnContext("sess_0", "run_0", "http://127.0.0.1:7850", "/state/manifest.json")
ID = "01a22f92-4c88-7471-92f9-6b4b795fdaae"


def on_stderr(name, exit_code):
    return Completed(exit_code, "", (TEXTS / name).read_text())


SIGNED_OUT = on_stderr("login-status-logged-out.txt", 1)
HEALTHY = {
    "--version": Completed(0, (TEXTS / "version.txt").read_text(), ""),
    "login status": on_stderr("login-status-api-key.txt", 0),
}


def backend(environ=None):
    return CodexExec(load(environ or {}))


async def diagnosed(environ, bin_dir, **answers):
    put(bin_dir, "codex")
    return await backend(environ).diagnose(Cli({"codex": {**HEALTHY, **answers}}))


def command(session=CHAT, prompt="hello"):
    codex = backend()
    return codex.command(ADMITTED, session, codex.compose(session, prompt), CONTEXT)


def setting(argv, key):
    """The value of ``-c KEY=VALUE`` as the CLI reads it, or None."""
    for flag, value in itertools.pairwise(argv):
        if flag == "-c" and value.startswith(f"{key}="):
            return tomllib.loads(value)[key]
    return None


async def test_a_signed_in_release_is_ready(environ, bin_dir):
    found = await diagnosed(environ, bin_dir)
    assert (found.status, found.version, found.authenticated) == ("ready", "0.171.0", True)


async def test_one_that_is_signed_out_says_which_command_signs_in(environ, bin_dir):
    found = await diagnosed(environ, bin_dir, **{"login status": SIGNED_OUT})
    assert (found.status, found.authenticated) == ("unauthenticated", False)
    assert "`codex login`" in found.action


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "CODEX_API_KEY"])
async def test_a_key_in_the_environment_counts_though_the_cli_does_not_see_it(
    environ, bin_dir, name
):
    answers = {"login status": SIGNED_OUT}
    found = await diagnosed({**environ, name: "sk-secret"}, bin_dir, **answers)
    assert found.status == "ready"
    assert name in found.message
    assert "sk-secret" not in found.message
    assert (await diagnosed({**environ, name: " "}, bin_dir, **answers)).status != "ready"


OWN = """
model_provider = "stub"
[model_providers.stub]
base_url = "http://127.0.0.1:8099/v1"
"""


@pytest.mark.parametrize(
    "config,environment,status",
    [
        (OWN, {}, "ready"),
        (OWN + 'env_key = "STUB_KEY"', {"STUB_KEY": "k"}, "ready"),
        (OWN + 'env_key = "STUB_KEY"', {}, "unauthenticated"),
        (OWN.replace('"stub"', '"other"'), {}, "unauthenticated"),
        ("model_provider = 7", {}, "unauthenticated"),
        ("model_providers = 7\nmodel_provider = 'a'", {}, "unauthenticated"),
        ("not toml [", {}, "unauthenticated"),
        ("# " + "x" * 300_000 + OWN, {}, "unauthenticated"),
        ("\xff", {}, "unauthenticated"),
    ],
    ids=["open", "its key", "no key", "another", "number", "no table", "broken", "huge", "bytes"],
)
async def test_a_provider_of_the_configuration_counts_where_it_can_be_reached(
    environ, bin_dir, tmp_path, config, environment, status
):
    (tmp_path / "config.toml").write_bytes(config.encode("latin-1"))
    environ = {**environ, **environment, "CODEX_HOME": str(tmp_path)}
    found = await diagnosed(environ, bin_dir, **{"login status": SIGNED_OUT})
    assert found.status == status


@pytest.mark.parametrize(
    "answer", [Completed(1, "", "Error: no config"), Completed(None, "", "", timed_out=True)]
)
async def test_an_unclear_answer_about_the_sign_in_is_an_error(environ, bin_dir, answer):
    environ = {**environ, "OPENAI_API_KEY": "k"}
    found = await diagnosed(environ, bin_dir, **{"login status": answer})
    assert (found.status, found.authenticated) == ("error", None)


async def test_another_program_of_that_name_is_never_run(environ, bin_dir):
    answer = Completed(0, "codex 1.0 - manuscripts\n", "")
    found = await diagnosed(environ, bin_dir, **{"--version": answer})
    assert found.status == "error"
    assert found.program is None


async def test_without_a_program_it_is_missing_and_says_how_to_get_it(environ):
    found = await backend(environ).diagnose(Cli())
    assert found.status == "missing"
    assert "npm install -g @openai/codex" in found.action


def row(slug, priority=1, **fields):
    levels = [{"effort": "low", "description": "-"}, {"effort": "high"}]
    return {
        "slug": slug,
        "display_name": slug.upper(),
        "visibility": "list",
        "priority": priority,
        "default_reasoning_level": "low",
        "supported_reasoning_levels": levels,
        **fields,
    }


async def listing(environ, bin_dir, answer):
    found = await diagnosed(environ, bin_dir)
    assert isinstance(found, Diagnostic)
    return await backend(environ).models(Cli({"codex": {"debug models": answer}}), found)


async def test_the_cli_lists_its_models_the_preferred_first_and_hides_its_own(environ, bin_dir):
    rows = [row("b", 2), row("a", 1), row("reviewer", 0, visibility="hide")]
    text = json.dumps({"models": rows, "more": 1})
    entry = await listing(environ, bin_dir, Completed(0, text, ""))
    assert [option["value"] for option in entry["models"]] == ["", "a", "b"]
    assert entry["models"][1]["label"] == "A"
    assert [option["value"] for option in entry["model_efforts"]["b"]] == ["", "low", "high"]
    assert (entry["default_model"], entry["default_effort"]) == ("a", "low")
    assert entry["model_source"] == "codex debug models"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"models": []}', '{"models": [{}]}', '{"models": [{"slug": 1}]}']
)
async def test_where_it_lists_none_the_built_in_ones_are_offered(environ, bin_dir, text):
    entry = await listing(environ, bin_dir, Completed(0, text, ""))
    assert entry["model_source"] == "codex debug models failed"
    assert entry["default_model"] == "gpt-5.5"


def test_a_turn_reads_its_prompt_from_stdin_in_a_folder_of_any_kind():
    for prompt in ("hello", "--help", "x" * 300_000):
        ran = command(prompt=prompt)
        assert ran.argv[:2] == (ADMITTED.executable, "exec")
        assert ran.argv[-1] == "-"
        assert {"--json", "--skip-git-repo-check"} <= set(ran.argv)
        assert ran.stdin == prompt.encode()
        assert ran.stop_signals == ("SIGINT",)


def test_policies_are_carried_out_or_narrowed_and_never_widened():
    widths = {mode: width for width, mode in enumerate(CODEX_SANDBOX_MODES)}
    for mode, approval, profile, reviewer in itertools.product(
        CODEX_SANDBOX_MODES,
        CODEX_APPROVAL_POLICIES,
        (None, "strict"),
        CODEX_APPROVALS_REVIEWERS,
    ):
        chat = evolve(
            CHAT,
            codex_sandbox_mode=mode,
            codex_approval_policy=approval,
            codex_permission_profile=profile,
            codex_approvals_reviewer=reviewer,
            cursor_permission_mode="full_access",
            claude_permission_mode="bypassPermissions",
        )
        argv = command(chat).argv
        given = argv[argv.index("--sandbox") + 1]
        assert given == sandbox(chat)
        assert widths[given] <= widths[mode]
        assert (given == mode) or approval == "untrusted" or profile
        assert not any("dangerously" in word or "approval" in word for word in argv)
        if approval == "untrusted":
            assert given == "read-only"


def test_a_thread_is_gone_on_with_and_a_fork_begins_with_its_parent_s():
    assert command().argv[-2:] == (command().argv[-2], "-")
    own = evolve(CHAT, codex=ProviderBinding(session_id=ID))
    assert command(own).argv[-3:] == ("resume", ID, "-")
    assert command(evolve(own, fork_from="other")).argv[-3:] == ("resume", ID, "-")
    assert command(evolve(CHAT, fork_from=ID)).argv[-3:] == ("fork", ID, "-")


def test_a_fresh_thread_is_told_instructions_apart_and_a_later_one_in_the_prompt():
    chat = evolve(CHAT, system_prompt="Be brief.")
    ran = command(chat)
    assert "Be brief." in setting(ran.argv, "developer_instructions")
    assert ran.stdin == b"hello"
    assert not any("Be brief." in word for word in ran.shown_argv)
    for later in (
        evolve(chat, codex=ProviderBinding(session_id=ID)),
        evolve(chat, fork_from=ID),
    ):
        ran = command(later)
        assert setting(ran.argv, "developer_instructions") is None
        assert b"Be brief." in ran.stdin


def test_what_it_has_been_told_is_not_told_again():
    chat = evolve(CHAT, system_prompt="Be brief.")
    first = backend().compose(chat, "hello")
    known = ProviderBinding(ID, first.instruction_hash, first.instruction_version)
    assert b"Be brief." not in command(evolve(chat, codex=known)).stdin


@given(st.text(max_size=50).filter(lambda text: text.strip()))
def test_any_instructions_reach_it_as_they_are(text):
    found = setting(command(evolve(CHAT, system_prompt=text)).argv, "developer_instructions")
    assert text.encode("utf-8", "replace").decode().strip() in found


def test_model_and_effort_are_passed_where_the_chat_has_them():
    argv = command(evolve(CHAT, model="gpt-5.5", effort="high")).argv
    assert argv[argv.index("-m") + 1] == "gpt-5.5"
    assert setting(argv, "model_reasoning_effort") == "high"
    assert "-m" not in command().argv
