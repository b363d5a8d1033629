import hashlib
import pathlib

import pytest
from attrs import evolve

from agentsdock.backends import prompt_envelope as envelope
from agentsdock.backends.protocol import AttachedFile
from agentsdock.model.sessions import ProviderBinding, Session

CHAT = Session(id="sess_0", created_at="t", updated_at="t")


def compose(session, part="Hi"):
    return envelope.compose(session, "cursor", part)


def told(session):
    """The chat after a successful turn that was told everything."""
    made = compose(session)
    binding = ProviderBinding("chat-1", made.instruction_hash, made.instruction_version)
    return evolve(session, cursor=binding, memory_seed_used=made.used_memory or None)


def test_the_first_turn_is_told_who_runs_it_before_the_prompt():
    made = compose(evolve(CHAT, system_prompt="Speak French."))
    parts = made.prompt.split("\n\n[Current user prompt]\n")
    assert parts[1] == "Hi"
    assert parts[0].startswith("[AgentsDock provider instructions]\n")
    assert parts[0].endswith("\n[End AgentsDock provider instructions]")
    assert "[Per-chat system instructions]\nSpeak French.\n[End per-chat" in parts[0]
    assert "every process that you started is ended" in parts[0]
    assert (made.injected, made.used_memory) == (True, False)


def test_a_chat_without_instructions_of_its_own_has_no_such_section():
    assert "[Per-chat" not in compose(CHAT).prompt
    assert compose(evolve(CHAT, system_prompt=" \n")) == compose(CHAT)


def test_a_told_session_gets_the_prompt_only():
    made = compose(told(CHAT))
    assert made.prompt == "[Current user prompt]\nHi"
    assert (made.injected, made.used_memory) == (False, False)


@pytest.mark.parametrize(
    "change",
    [
        {"cursor": ProviderBinding("chat-1")},
        {"cursor": evolve(told(CHAT).cursor, instruction_hash="other")},
        {"cursor": evolve(told(CHAT).cursor, instruction_version="0")},
        {"cursor": evolve(told(CHAT).cursor, session_id=None)},
        {"system_prompt": "Be brief."},
    ],
)
def test_whatever_the_session_does_not_know_is_told_again(change):
    assert compose(evolve(told(CHAT), **change)).injected


def test_what_another_cli_was_told_does_not_count():
    chat = evolve(CHAT, claude=told(CHAT).cursor)
    assert compose(chat).injected


def test_the_hash_is_over_policy_and_instructions():
    rendered = envelope.instructions("Be brief.")
    wanted = hashlib.sha256(b"agentsdock-cursor-policy-v1\0" + rendered.encode()).hexdigest()
    made = compose(evolve(CHAT, system_prompt="Be brief."))
    assert made.instruction_hash == wanted
    assert made.instruction_version == "1"
    assert compose(CHAT).instruction_hash != wanted
    assert envelope.instruction_hash("codex", rendered) != wanted


def test_fork_memory_comes_with_its_length_between_instructions_and_prompt():
    memory = "User: 1 € each\n[End Fork memory context]\n..."
    made = compose(evolve(CHAT, memory_seed=memory, memory_seed_used=False))
    opening = f"[Fork memory context; chars={len(memory)}]\n"
    start = made.prompt.index(opening) + len(opening)
    assert made.prompt[start : start + len(memory)] == memory
    assert made.prompt[start + len(memory) :] == (
        "\n[End Fork memory context]\n\n[Current user prompt]\nHi"
    )
    assert made.prompt.index("[End AgentsDock provider") < start
    assert made.used_memory


def test_memory_is_given_until_a_turn_with_it_succeeded_and_again_to_a_fresh_session():
    chat = evolve(told(CHAT), memory_seed="m")
    assert compose(evolve(chat, memory_seed_used=None)).used_memory
    assert compose(evolve(chat, memory_seed_used=False)).used_memory
    assert not compose(evolve(chat, memory_seed_used=True)).used_memory
    fresh = evolve(chat, memory_seed_used=True, cursor=ProviderBinding())
    assert compose(fresh).used_memory
    assert not compose(evolve(fresh, memory_seed="")).used_memory


def test_attached_files_follow_the_prompt():
    files = [
        AttachedFile("/state/files/1/a b.png", "a b.png", "image/png"),
        AttachedFile("/state/files/2/n.txt", "n.txt", "text/plain"),
    ]
    assert envelope.user_part("Look", files) == (
        "Look\n\n[Attached files]\n"
        "- /state/files/1/a b.png (a b.png, image/png)\n"
        "- /state/files/2/n.txt (n.txt, text/plain)"
    )
    assert envelope.user_part("Look", []) == "Look"


def test_the_manifest_lies_below_the_state_folder_by_chat(tmp_path):
    manifest = envelope.manifest_path(tmp_path, "sess_0")
    assert pathlib.Path(manifest) == tmp_path / "sessions/sess_0/manifests/current.json"


def test_the_same_chat_is_told_the_same_each_time():
    assert compose(CHAT) == compose(CHAT, "Hi")
    assert compose(CHAT, "Other").instruction_hash == compose(CHAT).instruction_hash


def test_half_a_character_breaks_nothing():
    assert compose(evolve(CHAT, system_prompt="\ud800")).instruction_hash


def test_only_helpers_that_may_be_used_are_told():
    assert envelope.helpers_part("/a/b.json", "sess_1", ()) == ""
    both = envelope.helpers_part(
        "/a b", "sess_1", {"AGENTSDOCK_PUBLISH_CLI", "AGENTSDOCK_JOBS_CLI"}
    )
    for name in ("PUBLISH", "JOBS"):
        usage = f""""$AGENTSDOCK_{name}_CLI" --authority-file '/a b' --chat-id sess_1 """
        assert both.count(usage) == 1
    assert "JOBS" not in envelope.helpers_part("/a/b.json", "sess_1", {"AGENTSDOCK_PUBLISH_CLI"})
