"""The real Claude Code and Codex under a real server, with a scripted model in place of theirs."""

import pytest
from installing import Unavailable, installed
from real_house import FREE, Chat, namespace, open_house

from agentsdock.backends.registry import make_backends
from agentsdock.config import load


@pytest.fixture(scope="session")
def clis():
    missing = {"claude", "codex"} - make_backends(load({})).keys()
    if missing:
        pytest.skip(f"this release does not run {' and '.join(sorted(missing))}")
    command, reason = namespace()
    if command is None:
        pytest.skip(reason)
    try:
        return installed()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_house(clis, tmp_path_factory):
    """One for all tests: each has chats of its own."""
    with open_house(tmp_path_factory.mktemp("real"), clis) as house:
        yield house


@pytest.fixture
async def client(real_house):
    async with real_house.client() as client:
        yield client


@pytest.fixture
def open_chat(real_house, client, request):
    async def open_chat(backend, **fields):
        """A chat in a repository of its own, in which every tool may run."""
        where = {"cwd": str(real_house.workspace(request.node.name))}
        return await Chat.open(real_house, client, backend, **{**FREE[backend], **where, **fields})

    return open_chat
