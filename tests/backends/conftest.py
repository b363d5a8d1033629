import pathlib

import pytest


@pytest.fixture
def bin_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def environ(bin_dir: pathlib.Path, tmp_path: pathlib.Path) -> dict[str, str]:
    return {
        "PATH": str(bin_dir),
        "HOME": str(tmp_path / "home"),
        "AGENTSDOCK_STATE_DIR": str(tmp_path / "state"),
    }
