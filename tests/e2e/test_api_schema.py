"""Whatever fits the API's own document, and much that does not, gets an answer that fits it."""

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentsdock.web.openapi.document import make_document
from agentsdock.web.openapi.operations import OPERATIONS

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
KEPT = [
    operation
    for operation in OPERATIONS
    if operation.answer != "websocket" and operation.body != "Upload"
]
SCHEMA = schemathesis.openapi.from_dict(make_document("1"))


@pytest.fixture
def session(shared_server):
    with requests.Session() as session:
        session.trust_env = False
        session.headers["X-AgentsDock-Token"] = shared_server.token
        yield session


def chat_of(server):
    headers = {"X-AgentsDock-Token": server.token}
    made = httpx.post(
        f"{server.url}/api/sessions", json={"backend": "cursor"}, headers=headers, trust_env=False
    )
    return made.json()["session"]["id"]


def checked(kept, mode, server, session):
    """A property of one operation: sent to a chat that there is, it does what is written."""
    chats = [chat_of(server)]

    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=SCHEMA[kept.path][kept.method.upper()].as_strategy(mode))
    def check(case):
        if "session_id" in (case.path_parameters or {}):
            case.path_parameters["session_id"] = chats[-1]
        case.call_and_validate(base_url=server.url, session=session, checks=CHECKS, timeout=20)
        if kept.method == "delete":
            chats.append(chat_of(server))

    return check


@pytest.mark.parametrize("mode", GenerationMode, ids=["what fits", "what does not"])
def test_no_operation_fails_and_each_answer_is_as_described(shared_server, session, mode):
    for kept in KEPT:
        if mode is GenerationMode.POSITIVE or kept.query or kept.body:
            checked(kept, mode, shared_server, session)()
    log = shared_server.log.read_text()
    assert "handler failed" not in log
    assert "Traceback" not in log
