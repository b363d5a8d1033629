"""The application: the areas' blueprints behind the gate, with one way to say no."""

from typing import TYPE_CHECKING

from quart_trio import QuartTrio

from agentsdock.web import (
    agents,
    diffs,
    errors,
    events,
    files,
    folders,
    forks,
    health,
    metrics,
    queue,
    reference,
    search,
    sessions,
    timeline,
    turns,
)
from agentsdock.web.gate import Gate, Policy
from agentsdock.web.page import routes

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock


AREAS = (
    health,
    sessions,
    forks,
    timeline,
    search,
    turns,
    queue,
    diffs,
    files,
    folders,
    agents,
    events,
    reference,
    metrics,
    routes,
)


def make_app(dock: "Dock") -> QuartTrio:
    """Routes are exact paths: nothing here ever redirects."""
    app = QuartTrio("agentsdock", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    errors.install(app)
    for area in AREAS:
        app.register_blueprint(area.blueprint(dock))
    app.asgi_app = Gate(app.asgi_app, Policy.of(dock.settings))  # type: ignore[method-assign]
    return app
