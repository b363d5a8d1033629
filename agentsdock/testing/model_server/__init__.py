"""A model server that plays scripts, for running real agent CLIs without account and network.

It answers the Anthropic Messages API and the OpenAI Responses API on the loopback.  What the
model "says" is chosen by a mark in the prompt, ``[[stub:shell cmd="ls -1"]]``, see
:mod:`agentsdock.testing.model_server.scripts`.
"""

from agentsdock.testing.model_server.server import ModelServer, running_model_server

__all__ = ["ModelServer", "running_model_server"]
