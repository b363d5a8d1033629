"""Every shape of the document by its name."""

from agentsdock.web.openapi.answers import ANSWERS
from agentsdock.web.openapi.bodies import BODIES
from agentsdock.web.openapi.shapes import Schema

SCHEMAS: dict[str, Schema] = {**BODIES, **ANSWERS}
