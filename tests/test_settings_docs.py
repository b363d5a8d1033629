"""Every setting is on its page."""

import pathlib
import re

from agentsdock import config

PAGE = pathlib.Path(__file__).parents[1] / "docs/contract.md"


def test_every_setting_that_is_read_is_documented(monkeypatch, tmp_path):
    asked = set()

    class Noting(config.Reader):
        def raw(self, suffix, *names):
            asked.add(suffix)
            return super().raw(suffix, *names)

    monkeypatch.setattr(config, "Reader", Noting)
    config.load({}, state_dir=tmp_path)
    # The page has the limits of Cursor, and says how those of the others differ.
    wanted = {re.sub(r"^(CLAUDE|CODEX)_(?!APP_)", "CURSOR_", name) for name in asked}
    named = set(re.findall(r"`([A-Z][A-Z_]+)`", PAGE.read_text()))
    assert wanted - named == set()
