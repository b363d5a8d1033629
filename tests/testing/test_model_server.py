"""The scripted model, as its two kinds of clients see it."""

import json
import time

import httpx
import pytest

from agentsdock.testing.model_server import running_model_server
from agentsdock.testing.model_server.scripts import SCRIPTS, Said, choose
from agentsdock.testing.model_server.tools import codex_call

PATHS = {"messages": "/v1/messages", "responses": "/v1/responses"}
CLAUDE_TOOLS = [{"name": "Bash"}, {"name": "Write"}]
CODEX_TOOLS = [{"name": "exec_command", "type": "function"}]
both = pytest.mark.parametrize("api", PATHS)


@pytest.fixture(scope="module")
def model():
    more = {"ours": [[{"say": "Ours {who}."}]]}
    with running_model_server(scripts=more) as server:
        yield server


def body(api, *texts, tools=True, stream=True, model="m"):
    """A conversation: the user's and the model's texts in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    offered = (CLAUDE_TOOLS if api == "messages" else CODEX_TOOLS) if tools else []
    key = "messages" if api == "messages" else "input"
    return {key: messages, "tools": offered, "stream": stream, "model": model}


def ask(server, api, *texts, **options):
    asked = body(api, *texts, **options)
    return httpx.post(server.url + PATHS[api], json=asked, trust_env=False, timeout=10)


def events(answer):
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]


def text_of(api, told):
    if api == "messages":
        deltas = [one["delta"] for one in told if one["type"] == "content_block_delta"]
        return "".join(delta.get("text", "") for delta in deltas)
    return "".join(one["delta"] for one in told if one["type"] == "response.output_text.delta")


@both
def test_a_text_comes_in_pieces_and_with_its_end(api, model):
    told = events(ask(model, api, "hi [[stub:text]]"))
    assert text_of(api, told) == "Hello from the scripted model. The answer is 42."
    last = {"messages": "message_stop", "responses": "response.completed"}[api]
    assert told[-1]["type"] == last


@both
def test_the_same_without_streaming(api, model):
    answer = ask(model, api, "hi [[stub:text]]", stream=False).json()
    assert "The answer is 42." in json.dumps(answer)
    assert answer["usage"]["output_tokens"] == 20


@both
def test_the_place_in_a_script_is_read_from_the_conversation(api, model):
    first = ask(model, api, "[[stub:shell cmd=pwd]]").text
    assert "pwd" in first
    second = ask(model, api, "[[stub:shell cmd=pwd]]", "Running it.").text
    assert "has run" in events_text(api, second)
    third = ask(model, api, "[[stub:shell cmd=pwd]]", "a", "go on", "b").text
    assert "All done." in events_text(api, third)


def events_text(api, raw):
    told = [json.loads(line[6:]) for line in raw.split("\n") if line.startswith("data: ")]
    return text_of(api, told)


@both
def test_errors_are_the_api_s_own(api, model):
    answer = ask(model, api, "[[stub:e429]]")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["type"] == "rate_limit_error"


@both
def test_what_happens_once_does_not_happen_again(api, model):
    statuses = [ask(model, api, f"[[stub:e500twice for={api}]]").status_code for _ in range(3)]
    assert statuses == [500, 500, 200]


def end_of(model):
    """How the last exchange ended.  The server notes it after the client has seen it."""
    deadline = time.monotonic() + 10
    while (end := model.requests[-1]["end"]) == "open" and time.monotonic() < deadline:
        time.sleep(0.01)
    return end


@both
def test_a_dropped_connection_and_a_cut_body(api, model):
    with pytest.raises(httpx.TransportError):
        ask(model, api, "[[stub:drop]]")
    cut = events(ask(model, api, "[[stub:cut]]"))
    assert cut[-1]["type"] not in ("message_stop", "response.completed")
    assert end_of(model) == "cut"


@both
def test_a_stall_ends_when_the_client_leaves(api, model):
    with pytest.raises(httpx.ReadTimeout), httpx.Client(trust_env=False, timeout=0.3) as client:
        client.post(model.url + PATHS[api], json=body(api, "[[stub:stallfirst]]"))
    assert model.requests[-1]["status"] == 200


@both
def test_a_call_for_a_title_gets_a_short_text(api, model):
    assert text_of(api, events(ask(model, api, "[[stub:shell]]", tools=False))) == "A short text."


@both
def test_scripts_of_one_s_own_and_in_the_prompt(api, model):
    assert text_of(api, events(ask(model, api, '[[stub:ours who="and yours"]]'))) == (
        "Ours and yours."
    )
    assert text_of(api, events(ask(model, api, '[[stub:[[{"say": "hi"}]]]]'))) == "hi"
    assert text_of(api, events(ask(model, api, "none", model="stub-think"))) == "It is yes."
    assert ask(model, api, "[[stub:nonsense]]").status_code == 404


def test_only_these_paths_are_there(model):
    with httpx.Client(base_url=model.url, trust_env=False) as client:
        assert client.get("/v1/models").json()["data"]
        assert client.get("/v1/responses").status_code == 426
        assert client.get("/v1/else").status_code == 404
        assert client.post("/v1/else", json={}).status_code == 404
        assert client.post("/v1/messages", content=b"{not").status_code == 404
        assert client.post("/v1/messages/count_tokens", json={}).json()["input_tokens"] >= 1
        assert client.head("/").status_code == 200


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_can_be_chosen(name):
    scene = choose(SCRIPTS, [Said("user", f"[[stub:{name}]]")], "m", tools=True)
    assert scene.name == name
    assert "{" not in str([step.get("shell") for step in scene.steps])


def test_the_newest_mark_counts_and_tools_answers_are_none():
    conversation = [
        Said("user", "[[stub:multi]]"),
        Said("model"),
        Said("tool"),
        Said("model"),
        Said("model"),
        Said("tool"),
    ]
    assert choose(SCRIPTS, conversation, "m", tools=True).index == 2
    newer = [*conversation, Said("user", "and [[stub:text]]")]
    assert choose(SCRIPTS, newer, "m", tools=True).name == "text"


@pytest.mark.parametrize(
    "offered, name",
    [
        ([{"name": "apply_patch", "type": "custom"}], "apply_patch"),
        ([{"name": "exec_command"}], "exec_command"),
        ([{"name": "exec", "type": "custom"}], "exec"),
        ([{"name": "shell_command"}], "shell_command"),
        ([], "shell"),
    ],
)
def test_a_file_is_written_by_what_codex_offers(offered, name):
    called, given = codex_call({"write": "a.txt", "content": "x\n"}, offered)
    assert called == name
    assert "*** Add File: a.txt" in str(given)
