"""Choices of the catalogue, as clients show them.  Pure."""

from collections.abc import Iterable, Mapping

SERVER_DEFAULT = {"value": "", "label": "Server default"}


def options(labels: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in labels.items()]


def effort_options(values: Iterable[str]) -> list[dict[str, str]]:
    labels = {value: "Extra high" if value == "xhigh" else value.capitalize() for value in values}
    return [SERVER_DEFAULT, *options(labels)]
