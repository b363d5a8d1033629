"""Its being here puts this folder on the path, so every test can import the helpers in it."""

import signal


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT, and so would every server that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
