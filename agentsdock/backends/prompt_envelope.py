"""The one string that a CLI gets as its prompt.  Pure.

A CLI without a channel for instructions of its own gets them in front of the user's prompt:
only when it does not know them yet, that is at the start of its session or when they changed.
Where there is such a channel, the prompt is the user's own text as far as it can be.
"""

import hashlib
import os
import pathlib
import shlex
from collections.abc import Collection, Sequence

from agentsdock.backends.protocol import AttachedFile, Envelope
from agentsdock.model.sessions import ProviderBinding, Session

HELPERS_MARK = "[AgentsDock helpers]"
INSTRUCTION_VERSION = "1"

_HELPER_USAGE = {
    "AGENTSDOCK_PUBLISH_CLI": (
        "To hand files to the user, run this with their absolute paths:",
        "FILE...",
    ),
    "AGENTSDOCK_JOBS_CLI": (
        "To see or change the scheduled jobs of this chat (list, get, runs, create, update, "
        "delete; --help tells more):",
        "list",
    ),
}

_PRELUDE = """\
AgentsDock runs you: a server that starts you without a terminal for one turn of a chat.
- Nobody can answer a question or approve an action while you work. Choose what is sensible, and \
say in your last message what you assumed and what you could not do.
- The user may read only your last message. Let it stand on its own.
- When the turn ends, every process that you started is ended too."""


def manifest_path(state_dir: pathlib.Path, session_id: str) -> str:
    """Where the CLI leaves the list of the files that it hands out."""
    return str(state_dir / "sessions" / session_id / "manifests" / "current.json")


def user_part(prompt: str, files: Sequence[AttachedFile]) -> str:
    """The prompt and the list of its files: what the user answers for."""
    if not files:
        return prompt
    rows = [f"- {file.path} ({file.filename}, {file.content_type})" for file in files]
    return "\n".join([prompt, "", "[Attached files]", *rows])


def instructions(system_prompt: str | None) -> str:
    """What the CLI is told once: the server's part, then the chat's."""
    chat = (system_prompt or "").strip()
    if not chat:
        return _PRELUDE
    return "\n".join(
        [
            _PRELUDE,
            "",
            "[Per-chat system instructions]",
            chat,
            "[End per-chat system instructions]",
        ]
    )


def instruction_hash(backend: str, rendered: str) -> str:
    """SHA-256 in hex over the policy's name and version, a NUL, and the instructions."""
    policy = f"agentsdock-{backend}-policy-v{INSTRUCTION_VERSION}"
    return hashlib.sha256(f"{policy}\0{rendered}".encode("utf-8", "surrogatepass")).hexdigest()


def helpers_part(authority: str, session_id: str, helpers: Collection[str]) -> str:
    """What an agent may run; ``authority`` is the path of its turn's own file.

    ``helpers`` are the variables of the programs that it has and may use.
    """
    told = [
        line
        for name, (purpose, usage) in _HELPER_USAGE.items()
        if name in helpers
        for line in (
            purpose,
            f'"${name}" --authority-file {shlex.quote(authority)} --chat-id {session_id} {usage}',
        )
    ]
    return "\n".join([HELPERS_MARK, *told, "[End AgentsDock helpers]"]) if told else ""


def compose(
    session: Session,
    backend: str,
    part: str,
    helpers: str = "",
    *,
    files: Sequence[AttachedFile] = (),
    aside: bool = False,
) -> Envelope:
    """Envelope of the user's part, with instructions and memory where they are due.

    ``aside`` says that the instructions go through the CLI's own channel.  Without it a section
    header comes first in any case, so that the whole is never taken for an option.
    """
    binding = session.binding(backend)
    rendered = instructions(session.system_prompt)
    digest = instruction_hash(backend, rendered)
    injected = not aside and _knows_not(binding, digest)
    memory = _due_memory(session, binding)
    sections = []
    if injected:
        sections += [
            "[AgentsDock provider instructions]\n"
            f"{rendered}\n"
            "[End AgentsDock provider instructions]"
        ]
    if memory:
        # The length lets a reader find the end whatever the memory says.
        sections += [
            f"[Fork memory context; chars={len(memory)}]\n{memory}\n[End Fork memory context]"
        ]
    sections += [part if aside and not sections else f"[Current user prompt]\n{part}"]
    if helpers:
        sections += [helpers]
    return Envelope(
        prompt="\n\n".join(sections),
        instruction_hash=digest,
        instruction_version=INSTRUCTION_VERSION,
        injected=injected,
        used_memory=bool(memory),
        instructions=rendered if aside else None,
        folders=tuple(dict.fromkeys(os.path.dirname(file.path) for file in files)),
    )


def _knows_not(binding: ProviderBinding, digest: str) -> bool:
    told = (binding.instruction_hash, binding.instruction_version)
    return binding.session_id is None or told != (digest, INSTRUCTION_VERSION)


def _due_memory(session: Session, binding: ProviderBinding) -> str | None:
    if session.memory_seed_used and binding.session_id is not None:
        return None
    return session.memory_seed or None
