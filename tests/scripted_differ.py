"""A differ that says what a test wants it to say."""

import trio


class ScriptedDiffer:
    """``found`` are the fields of the diff; ``noting`` and ``comparing`` hold it up."""

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        self.missing: str | None = None
        self.patch: bytes | None = None
        self.found: dict | None = None
        self.noting: trio.Event | None = None
        self.comparing: trio.Event | None = None
        self.noted: str | None = None
        self.edited: list[tuple[str, ...]] = []
        self.closed = False

    async def before(self, folder):
        if self.noting is not None:
            await self.noting.wait()
        self.noted = folder

    async def after(self, edited):
        self.edited.append(tuple(edited))
        if self.comparing is not None:
            self.missing = "not in time"
            await self.comparing.wait()
            self.missing = None
        return self.found

    async def close(self):
        self.closed = True
