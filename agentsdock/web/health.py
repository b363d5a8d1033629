"""What this server is and can: health, the liveness probe, the runtime catalogue.

Health is read from memory alone, without probes or disk, so it answers while all else is busy.
"""

import os
from typing import TYPE_CHECKING, Any

import wsproto
from quart import Blueprint, request

from agentsdock.chats.folders import MOST_RESULTS
from agentsdock.config import Settings
from agentsdock.model.sessions import BACKENDS, CURSOR_PERMISSION_MODES
from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Query

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

API_CONTRACT_VERSION = 14


def _capability(available: bool, message: str, **extra: Any) -> dict[str, Any]:
    return {
        "available": available,
        "required": False,
        "message": message,
        "action": None,
        **extra,
    }


def capabilities(*, has_token: bool) -> dict[str, Any]:
    """Keys that no client needs are left out: to clients an absent feature is a hidden one."""
    return {
        "cursor_backend": _capability(
            True,
            "Cursor chats run through the Cursor CLI, headless and guarded.",
            version=2,
            permission_modes=list(CURSOR_PERMISSION_MODES),
            default_permission_mode="default",
            permission_semantics={
                "default": "cursor_configured_permissions_without_force",
                "full_access": "force_allow_except_explicit_cursor_denies",
                "plan": "plan_only",
            },
            supports_standalone_context=True,
            instruction_channel="prompt_envelope",
            trusted_system_instruction_channel=False,
        ),
        "websocket_auth_v1": _capability(
            has_token,
            "Event sockets take the token as a subprotocol."
            if has_token
            else "This server has no token.",
            version=1,
        ),
        "working_directory_completion": _capability(
            True,
            "Folders of this machine can be completed.",
            version=1,
            max_results=MOST_RESULTS,
        ),
        "scheduled_jobs": _capability(
            False,
            "This server does not run scheduled jobs.",
            version=2,
            context_modes=["chat", "standalone"],
            default_context_mode="chat",
        ),
        "provider_jobs_access_control_v1": _capability(
            False,
            "This server does not run scheduled jobs.",
            version=1,
            modes=["full", "read_only", "blocked"],
            default="full",
        ),
        "cross_chat_handoffs_v1": _capability(
            False,
            "This server does not pass messages between chats.",
            version=3,
            required_target_transports={"codex": "exec", "claude": "print"},
        ),
    }


def job_guard(settings: Settings, available_mem_mb: int | None) -> dict[str, Any]:
    """The host's load beside the limits at which turns and jobs wait; memory in MB."""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    return {
        "load_1m": round(load, 2),
        "load_per_cpu": round(load / cpus, 2),
        "cpu_count": cpus,
        "available_mem_mb": available_mem_mb,
        "job_min_available_mem_mb": settings.job_min_available_mem_mb,
        "job_max_active_runs": settings.job_max_active_runs,
        "start_min_available_mem_mb": settings.min_start_available_mem_mb,
        "start_max_active_runs": settings.max_active_runs,
    }


def blueprint(dock: "Dock") -> Blueprint:
    health = Blueprint("health", __name__)
    settings, identity, runtimes = dock.settings, dock.identity, dock.runtimes
    fixed = {
        "ok": True,
        "server_version": identity.version,
        "api_contract_version": API_CONTRACT_VERSION,
        "server_identity": identity.server,
        "server_instance_id": identity.instance,
        "state_dir": str(settings.state_dir),
        "default_backend": settings.default_backend,
        "default_cwd": settings.cwd,
        "auth_required": settings.token is not None,
        "managed_updates": False,
        "capabilities": capabilities(has_token=settings.token is not None),
        "websocket_runtime": True,
        "websocket_runtime_version": wsproto.__version__,
        "update_blocking_queued_count": 0,
        "jobs": 0,
        "host_health_log": "",
        "max_active_agent_runs": settings.max_active_runs,
    }

    @health.get("/healthz")
    async def alive() -> tuple[str, int, dict[str, str]]:
        return "ok", 200, {"content-type": "text/plain", "cache-control": "no-store"}

    @health.get("/api/health")
    async def report() -> Answer:
        diagnostics = {name: runtimes.diagnostic(name).public() for name in BACKENDS}
        now = dock.chats.health()
        guard = job_guard(settings, now.get("available_mem_mb"))
        return answer({**fixed, **now, "job_guard": guard, "runtimes": diagnostics})

    @health.get("/api/runtime/catalog")
    async def catalog() -> Answer:
        refresh = Query(request.args).flag("refresh", False)
        return answer(await runtimes.catalog(refresh=refresh))

    @health.get("/api/jobs")
    async def no_jobs() -> Answer:
        return answer({"jobs": []})

    return health
