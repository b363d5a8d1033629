"""The installer's programs are no package: they are imported from where they lie."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging"))


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    from homes import make_checkout

    return make_checkout(tmp_path_factory.mktemp("source") / "agentsdock")


@pytest.fixture
def home(tmp_path):
    from homes import Home

    home = Home(tmp_path / "home")
    yield home
    home.close()
