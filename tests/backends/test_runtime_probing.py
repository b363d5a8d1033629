import json
import os

import pytest
import trio
from attrs import define, evolve, field
from scripted_cli import HEALTHY, Cli, client, printed, put
from trio.testing import Sequencer

from agentsdock import config
from agentsdock.backends.probing import CATALOG_SECONDS, Runtimes
from agentsdock.backends.programs import identify
from agentsdock.backends.protocol import Completed, Diagnostic
from agentsdock.backends.registry import make_backends
from agentsdock.model.errors import Unavailable

TTL = 60


async def no_probe(argv, *, env, timeout):
    raise AssertionError("the scripted backend runs nothing")


async def nothing():
    await trio.lowlevel.checkpoint()


@define
class Scripted:
    """A backend that answers what it is told to; ``before`` is awaited in front of an answer."""

    program: object
    name: str = "cursor"
    status: str = "ready"
    sign_in: str = "ready"
    before: object = nothing
    before_models: object = nothing
    probes: int = 0
    confirmations: int = 0
    listings: int = 0
    listed: list = field(factory=list)

    async def diagnose(self, run):
        self.probes += 1
        told = self._told(self.status, f"probe {self.probes}")
        await self.before()
        return told

    async def check_sign_in(self, run, diagnostic):
        self.confirmations += 1
        told = evolve(diagnostic, status=self.sign_in, message="asked")
        await self.before()
        return told

    async def models(self, run, diagnostic):
        self.listings += 1
        await self.before_models()
        return {"models": [{"value": "m", "label": "M"}], "model_source": diagnostic.message}

    def fallback_models(self, source):
        return {"models": [{"value": "auto", "label": "Auto"}], "model_source": source}

    def missing(self):
        return Diagnostic(self.name, status="missing", installed=False, message="gone")

    def _told(self, status, message):
        return Diagnostic(
            self.name,
            status=status,
            message=message,
            action=None if status == "ready" else "do something",
            version="1",
            program=None if status == "missing" else self.program,
            features="opaque",
        )


@pytest.fixture
def program(tmp_path):
    return put(tmp_path / "cli", "agent")


@pytest.fixture
def backend(program):
    return Scripted(identify(str(program)))


@pytest.fixture
def runtimes(backend):
    return Runtimes(config.load({}), {"cursor": backend}, no_probe)


async def test_before_the_first_probe_nothing_is_known_and_nothing_is_run(runtimes, backend):
    assert runtimes.diagnostic("cursor").public()["status"] == "unknown"
    assert runtimes.diagnostic("cursor").public()["action"] is None
    assert backend.probes == 0


async def test_a_ready_cli_is_admitted_with_the_probed_file(runtimes, backend, program):
    admitted = await runtimes.admit("cursor")
    assert (admitted.backend, admitted.executable) == ("cursor", str(program))
    assert (admitted.version, admitted.features) == ("1", "opaque")


async def test_within_its_time_to_live_a_probe_is_reused(runtimes, backend, autojump_clock):
    await runtimes.check("cursor")
    await trio.sleep(TTL - 1)
    await runtimes.check("cursor")
    assert backend.probes == 1
    await trio.sleep(1)
    await runtimes.check("cursor")
    assert backend.probes == 2


async def test_a_turn_never_waits_for_a_probe_of_the_file_that_was_ready(
    runtimes, backend, autojump_clock
):
    await runtimes.admit("cursor")
    await trio.sleep(100 * TTL)
    await runtimes.admit("cursor")
    assert backend.probes == 1


async def test_a_refresh_probes_whatever_the_age(runtimes, backend):
    await runtimes.check("cursor")
    await runtimes.check("cursor", refresh=True)
    assert backend.probes == 2


async def test_callers_at_the_same_time_share_one_probe(runtimes, backend, autojump_clock):
    async def slow():
        await trio.sleep(2)

    backend.before = slow
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(runtimes.admit, "cursor")
    assert backend.probes == 1


async def test_a_cancelled_prober_leaves_the_probe_to_the_next(runtimes, backend, autojump_clock):
    async def slow():
        await trio.sleep(5)

    backend.before = slow
    admitted = []

    async def wait():
        admitted.append(await runtimes.admit("cursor"))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            nursery.start_soon(wait_a_little, wait)
            await runtimes.admit("cursor")
    assert backend.probes == 2
    assert len(admitted) == 1


async def wait_a_little(wait):
    await trio.sleep(0.5)
    await wait()


@pytest.mark.parametrize("status", ["missing", "unauthenticated", "error"])
async def test_a_cli_that_is_not_ready_is_unavailable_and_says_why(runtimes, backend, status):
    backend.status = status
    with pytest.raises(Unavailable) as refused:
        await runtimes.admit("cursor")
    assert refused.value.status == 503
    assert refused.value.detail() == {
        "code": "runtime_unavailable",
        "backend": "cursor",
        "status": status,
        "message": "probe 1",
        "action": "do something",
    }


@pytest.mark.parametrize("change", ["removed", "replaced", "rewritten", "not executable"])
async def test_a_program_that_changed_since_its_probe_is_probed_again(
    runtimes, backend, program, change
):
    await runtimes.admit("cursor")
    if change == "removed":
        program.unlink()
        backend.status = "missing"
    elif change == "replaced":
        new, told = put(program.parent, "new"), program.stat()
        os.utime(new, ns=(told.st_atime_ns, told.st_mtime_ns))
        new.replace(program)
    elif change == "rewritten":
        program.write_text("#!/bin/sh\nexit 1\n")
    else:
        program.chmod(0o644)
        backend.status = "error"
    backend.program = identify(str(program))
    if backend.status == "ready":
        await runtimes.admit("cursor")
    else:
        with pytest.raises(Unavailable):
            await runtimes.admit("cursor")
    assert backend.probes == 2


async def test_a_probe_never_overwrites_what_became_known_after_it_began(runtimes, backend):
    await runtimes.check("cursor")
    order = Sequencer()
    backend.sign_in = "unauthenticated"

    async def probe():
        async def slow():
            async with order(0):
                backend.before = nothing
            async with order(2):
                pass

        backend.before = slow
        await runtimes.check("cursor", refresh=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe)
        async with order(1):
            await runtimes.record_failure("cursor", "said no", auth_suspect=True)
    found = runtimes.diagnostic("cursor")
    assert (found.status, found.last_error) == ("unauthenticated", "said no")


async def test_a_slow_bad_probe_does_not_overwrite_a_newer_success(runtimes, backend):
    await runtimes.check("cursor")
    order = Sequencer()
    backend.status = "error"

    async def slow():
        async with order(0):
            pass
        async with order(2):
            pass

    backend.before = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: runtimes.check("cursor", refresh=True))
        async with order(1):
            runtimes.record_success("cursor")
    assert runtimes.diagnostic("cursor").status == "ready"


async def test_a_slow_confirmation_does_not_overwrite_a_newer_success(runtimes, backend):
    await runtimes.check("cursor")
    order = Sequencer()
    backend.sign_in = "unauthenticated"

    async def slow():
        async with order(0):
            pass
        async with order(2):
            pass

    backend.before = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: runtimes.record_failure("cursor", "no", auth_suspect=True))
        async with order(1):
            runtimes.record_success("cursor")
    assert runtimes.diagnostic("cursor").status == "ready"


async def test_a_failure_keeps_the_status_and_is_remembered(runtimes, backend):
    await runtimes.check("cursor")
    await runtimes.record_failure("cursor", "x" * 2000)
    found = runtimes.diagnostic("cursor")
    assert found.status == "ready"
    assert found.last_error == "x" * 700
    assert found.last_error_at.endswith("Z")
    assert backend.confirmations == 0


async def test_only_a_success_clears_the_last_error(runtimes, backend):
    await runtimes.check("cursor")
    await runtimes.record_failure("cursor", "said no")
    await runtimes.check("cursor", refresh=True)
    assert runtimes.diagnostic("cursor").last_error == "said no"
    runtimes.record_success("cursor")
    assert runtimes.diagnostic("cursor").last_error is None
    assert runtimes.diagnostic("cursor").last_error_at is None


async def test_words_of_a_missing_sign_in_are_confirmed_once_by_the_cli(
    runtimes, backend, autojump_clock
):
    await runtimes.check("cursor")
    backend.sign_in = "unauthenticated"

    async def slow():
        await trio.sleep(1)

    backend.before = slow
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(lambda: runtimes.record_failure("cursor", "401", auth_suspect=True))
    assert backend.confirmations == 1
    with pytest.raises(Unavailable):
        await runtimes.admit("cursor")
    assert backend.probes == 1


async def test_words_alone_log_nobody_out(runtimes, backend):
    await runtimes.check("cursor")
    await runtimes.record_failure("cursor", "401", auth_suspect=True)
    assert backend.confirmations == 1
    found = runtimes.diagnostic("cursor")
    assert (found.status, found.message, found.last_error) == ("ready", "probe 1", "401")
    await runtimes.admit("cursor")


async def test_a_success_makes_a_signed_out_cli_ready_again(runtimes, backend):
    backend.status = "unauthenticated"
    await runtimes.check("cursor")
    runtimes.record_success("cursor")
    found = runtimes.diagnostic("cursor").public()
    assert (found["status"], found["authenticated"], found["action"]) == ("ready", True, None)


async def test_a_late_success_does_not_make_a_removed_cli_ready(runtimes, backend):
    backend.status = "missing"
    await runtimes.check("cursor")
    runtimes.record_success("cursor")
    assert runtimes.diagnostic("cursor").status == "missing"


async def test_successes_do_not_keep_a_probe_fresh_for_ever(runtimes, backend, autojump_clock):
    await runtimes.check("cursor")
    for _ in range(4):
        await trio.sleep(TTL / 4)
        runtimes.record_success("cursor")
    await runtimes.check("cursor")
    assert backend.probes == 2


async def test_turns_that_succeed_during_a_good_probe_do_not_void_it(runtimes, backend):
    await runtimes.check("cursor")

    async def meanwhile():
        runtimes.record_success("cursor")
        await trio.lowlevel.checkpoint()

    backend.before = meanwhile
    await runtimes.check("cursor", refresh=True)
    assert runtimes.diagnostic("cursor").message == "probe 2"


async def test_a_program_found_missing_at_its_start_is_looked_for_again(runtimes, backend):
    await runtimes.admit("cursor")
    runtimes.record_missing("cursor")
    assert runtimes.diagnostic("cursor").status == "missing"
    await runtimes.admit("cursor")
    assert backend.probes == 2


async def test_the_catalogue_has_all_backends_and_what_clients_require(environ, backend):
    backends = {**make_backends(config.load(environ)), "cursor": backend}
    catalog = await Runtimes(config.load(environ), backends, no_probe).catalog()
    assert catalog["generated_at"].endswith("Z")
    assert list(catalog["backends"]) == ["claude", "codex", "cursor"]
    for entry in catalog["backends"].values():
        assert any(option["value"].strip() for option in entry["models"])
        assert entry["available"] is (entry["diagnostic"]["status"] == "ready")
        assert set(entry["diagnostic"]) == set(Diagnostic("x").public())
    assert catalog["backends"]["cursor"]["available"] is True
    assert catalog["backends"]["claude"]["available"] is False
    json.dumps(catalog)


async def test_the_catalogue_reuses_the_probe_unless_refreshed(runtimes, backend):
    await runtimes.catalog()
    await runtimes.catalog()
    assert (backend.probes, backend.listings) == (1, 2)
    await runtimes.catalog(refresh=True)
    assert backend.probes == 2


async def test_clients_that_ask_at_once_share_one_listing(runtimes, backend, autojump_clock):
    async def slow():
        await trio.sleep(1)

    backend.before_models = slow
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(runtimes.catalog)
    assert backend.listings == 1


async def test_a_spent_budget_offers_the_router_and_downgrades_nothing(
    runtimes, backend, autojump_clock
):
    await runtimes.check("cursor")
    backend.before_models = trio.sleep_forever
    began = trio.current_time()
    with trio.fail_after(10 * CATALOG_SECONDS):
        entry = (await runtimes.catalog())["backends"]["cursor"]
    assert trio.current_time() - began == pytest.approx(CATALOG_SECONDS)
    assert entry["model_source"] == "Runtime refresh deadline"
    assert entry["models"] == [{"value": "auto", "label": "Auto"}]
    assert entry["available"] is True

    backend.before = trio.sleep_forever
    entry = (await runtimes.catalog(refresh=True))["backends"]["cursor"]
    assert entry["available"] is True
    assert entry["diagnostic"]["message"] == "probe 1"


async def test_a_whole_probe_counts_against_one_budget(runtimes, backend, autojump_clock):
    async def slow():
        await trio.sleep(20)

    backend.before = backend.before_models = slow
    began = trio.current_time()
    with trio.fail_after(10 * CATALOG_SECONDS):
        entry = (await runtimes.catalog())["backends"]["cursor"]
    assert trio.current_time() - began == pytest.approx(CATALOG_SECONDS)
    assert entry["model_source"] == "Runtime refresh deadline"
    assert entry["diagnostic"]["status"] == "ready"


async def test_the_fallback_lists_hold_the_models_and_efforts_of_the_contract():
    backends = make_backends(config.load({}))
    claude, codex = (backends[name].fallback_models("-") for name in ("claude", "codex"))
    assert [option["value"] for option in claude["models"]] == [
        "",
        "fable",
        "claude-fable-5",
        "sonnet",
        "opus",
        "opus[1m]",
        "claude-opus-4-8",
        "claude-opus-4-8[1m]",
        "haiku",
    ]
    assert [option["value"] for option in claude["efforts"]] == [
        "", "low", "medium", "high", "xhigh", "max",
    ]  # fmt: skip
    models = [option["value"] for option in codex["models"]]
    assert models == [
        "", "gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5", "gpt-5.4", "gpt-5.4-mini",
    ]  # fmt: skip
    assert set(codex["model_efforts"]) == set(models) - {""}
    assert codex["models"][1]["label"] == "GPT-5.6 Sol"
    assert codex["default_model"] == "gpt-5.5"
    assert codex["default_effort"] == "xhigh"


async def test_a_swapped_link_is_noticed_and_the_admitted_file_stays(environ, bin_dir):
    old = put(bin_dir / "1", "cursor-agent")
    new = put(bin_dir / "2", "cursor-agent")
    link = bin_dir / "cursor-agent"
    link.symlink_to(old)
    cli = Cli({"cursor-agent": dict(HEALTHY)})
    runtimes = Runtimes(config.load(environ), {"cursor": client(environ)}, cli)
    await runtimes.admit("cursor")

    link.unlink()
    link.symlink_to(new)
    cli.answers["cursor-agent"] = {
        "--help": printed("help-legacy-2025.txt"),
        "--version": printed("version-2025.txt"),
    }
    assert (await runtimes.admit("cursor")).executable == str(old)
    catalog = await runtimes.catalog(refresh=True)
    assert catalog["backends"]["cursor"]["diagnostic"]["status"] == "error"
    with pytest.raises(Unavailable, match="plan mode"):
        await runtimes.admit("cursor")


async def test_a_removed_admitted_file_is_refused_unless_another_is_found(environ, bin_dir):
    program = put(bin_dir, "cursor-agent")
    cli = Cli({"cursor-agent": HEALTHY, "agent": HEALTHY})
    runtimes = Runtimes(config.load(environ), {"cursor": client(environ)}, cli)
    await runtimes.admit("cursor")
    program.unlink()
    with pytest.raises(Unavailable) as refused:
        await runtimes.admit("cursor")
    assert refused.value.detail()["status"] == "missing"
    other = put(bin_dir, "agent")
    runtimes.record_missing("cursor")
    assert (await runtimes.admit("cursor")).executable == str(other)


async def test_a_lost_sign_in_is_found_by_status_and_shown_without_the_account(environ, bin_dir):
    put(bin_dir, "agent")
    cli = Cli({"agent": dict(HEALTHY)})
    runtimes = Runtimes(config.load(environ), {"cursor": client(environ)}, cli)
    await runtimes.admit("cursor")
    asked = len(cli.calls)
    cli.answers["agent"]["status"] = printed("status-token-expired.txt")
    await runtimes.record_failure("cursor", "Sign-in needed.", auth_suspect=True)
    assert cli.asked[asked:] == ["status"]
    found = runtimes.diagnostic("cursor")
    assert found.status == "unauthenticated"
    assert "`agent login`" in found.action

    cli.answers["agent"]["status"] = Completed(1, "", "dev@example.invalid: offline")
    await runtimes.check("cursor", refresh=True)
    assert runtimes.diagnostic("cursor").status == "error"
    assert "dev@" not in repr(runtimes.diagnostic("cursor").public())


async def test_a_bug_in_a_backend_costs_no_other_its_entry(environ, backend):
    async def bug():
        raise RuntimeError("a bug")

    backends = {**make_backends(config.load(environ)), "cursor": backend}
    runtimes = Runtimes(config.load(environ), backends, no_probe)
    backend.before_models = bug
    entry = (await runtimes.catalog())["backends"]["cursor"]
    assert (entry["available"], entry["model_source"]) == (True, "Model listing failed")
    backend.before = bug
    entries = (await runtimes.catalog(refresh=True))["backends"]
    assert entries["cursor"]["diagnostic"]["status"] == "error"
    assert entries["codex"]["diagnostic"]["status"] == "missing"
