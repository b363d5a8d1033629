"""What the CLIs' streams have held that this release does not know, counted per CLI and version.

Nothing here ends a turn.  The counts say that a CLI has moved on, before something breaks.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

MAX_BUILDS = 32
MAX_NAMES = 200


class DriftRadar:
    """Sums of the turns of one server life.  Bounded: later builds and names are not added."""

    def __init__(self) -> None:
        self._builds: dict[tuple[str, str], Counter[tuple[str, str]]] = {}

    def add(self, backend: str, version: str | None, drift: Mapping[tuple[str, str], int]) -> None:
        """Take in the (kind, name) counts of a turn that has ended."""
        if not drift:
            return
        build = (backend, version or "unknown")
        if build not in self._builds and len(self._builds) >= MAX_BUILDS:
            return
        counts = self._builds.setdefault(build, Counter())
        for name, count in drift.items():
            if name in counts or len(counts) < MAX_NAMES:
                counts[name] += count

    def public(self) -> list[dict[str, Any]]:
        """One row per CLI, version, kind and name; the most frequent first."""
        return [
            {"backend": backend, "version": version, "kind": kind, "name": name, "count": count}
            for (backend, version), counts in self._builds.items()
            for (kind, name), count in counts.most_common()
        ]
