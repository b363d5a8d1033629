import pytest
from scripted_cli import HEALTHY, Cli, client, printed, put

from agentsdock.backends.protocol import Completed

AUTO = [{"value": "auto", "label": "Auto"}]


async def entry(environ, answers):
    backend = client(environ)
    cli = Cli({"agent": {**HEALTHY, **answers}})
    found = await backend.diagnose(cli)
    asked = len(cli.calls)
    return await backend.models(cli, found), cli.asked[asked:]


@pytest.fixture(autouse=True)
def agent(bin_dir):
    return put(bin_dir, "agent")


async def test_a_ready_cli_offers_its_models_behind_the_default_one(environ):
    found, asked = await entry(environ, {"--list-models": printed("list-models-paid-plan.txt")})
    assert found == {
        "models": [
            {"value": "", "label": "Composer 2.5 Fast"},
            {"value": "auto", "label": "Auto"},
            {"value": "composer-2.5", "label": "Composer 2.5"},
            {"value": "composer-2.5-fast", "label": "Composer 2.5 Fast"},
            {"value": "gpt-5.5-extra-high", "label": "GPT-5.5 1M Extra High"},
            {"value": "claude-fable-5", "label": "Claude Fable 5 (NO ZDR)"},
            {"value": "kimi-k3-max", "label": "Kimi K3"},
        ],
        "efforts": [],
        "model_source": "agent --list-models",
        "effort_source": "none",
        "default_model": "composer-2.5-fast",
        "default_effort": None,
        "permission_modes": ["default", "full_access", "plan"],
        "default_permission_mode": "default",
    }
    assert asked == ["--list-models"]


async def test_without_a_marked_default_the_first_model_is_it(environ):
    found, _ = await entry(environ, {"--list-models": printed("list-models-noisy.txt")})
    assert found["default_model"] == "auto"
    assert found["models"][0] == {"value": "", "label": "Auto"}


async def test_a_free_plan_locks_every_named_model_and_not_the_router(environ):
    found, _ = await entry(environ, {"about": printed("about-json.txt")})
    locked = {option["value"]: option.get("locked") for option in found["models"]}
    assert locked == {
        "": None,
        "auto": None,
        "composer-2.5": True,
        "gpt-5.4-mini-low": True,
        "claude-sonnet-5-thinking-high": True,
    }
    assert all(option["locked_reason"] for option in found["models"] if option.get("locked"))


async def test_a_plan_that_is_not_told_locks_nothing(environ):
    about = Completed(0, "About Cursor CLI\n\nCLI Version  2026.09.30-x\n", "")
    found, _ = await entry(environ, {"about": about})
    assert not any(option.get("locked") for option in found["models"])


@pytest.mark.parametrize(
    "answer,source",
    [
        (Completed(1, "", "boom"), "agent --list-models failed"),
        (Completed(None, "", "", timed_out=True), "agent --list-models failed"),
        (printed("list-models-empty.txt"), "agent --list-models empty"),
    ],
)
async def test_without_a_list_only_the_router_is_offered(environ, answer, source):
    found, _ = await entry(environ, {"--list-models": answer})
    assert found["models"] == AUTO
    assert found["model_source"] == source
    assert found["default_model"] == "auto"


@pytest.mark.parametrize(
    "answers",
    [
        {"--help": printed("help-legacy-2025.txt")},
        {"status": printed("status-not-logged-in.txt")},
        {"status": printed("status-unknown.txt")},
        {"--version": Completed(1, "", "")},
    ],
)
async def test_a_cli_that_is_not_ready_is_asked_for_nothing(environ, answers):
    found, asked = await entry(environ, answers)
    assert asked == []
    assert found["models"] == AUTO
    assert found["model_source"] == "Cursor runtime unavailable"


async def test_the_listing_that_the_build_has_is_used(environ):
    help_text = printed("help-compatible.txt").stdout.replace(
        "  --list-models ", "  --list-nothing "
    )
    found, asked = await entry(environ, {"--help": Completed(0, help_text, "")})
    assert asked == ["models"]
    assert found["model_source"] == "agent models"
    assert found["default_model"] == "composer-2.5-fast"
