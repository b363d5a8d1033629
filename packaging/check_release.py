"""Run by a release's own Python: imports all of it, and prints what it knows.

``check_release.py ROOT`` prints ``{"version", "schema"}``.  Any module that cannot be imported,
or comes from elsewhere, is named, and the status is 1.
"""

import importlib
import json
import pathlib
import sys

FOR_TESTS = ("pytest",)
"""What the testing kit may need and an installation has not."""


def main() -> None:
    root = pathlib.Path(sys.argv[1]).resolve()
    failures = []
    for path in sorted((root / "agentsdock").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        try:
            module = importlib.import_module(_module(name))
            if not pathlib.Path(str(module.__file__)).resolve().is_relative_to(root):
                failures.append(f"{name}: {module.__file__} was imported in its place")
        except ModuleNotFoundError as error:
            if error.name not in FOR_TESTS:
                failures.append(f"{name}: {error}")
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    if failures:
        sys.exit("\n".join(failures))
    import agentsdock
    from agentsdock.store.schema import MIGRATIONS

    print(json.dumps({"version": agentsdock.__version__, "schema": len(MIGRATIONS)}))


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


if __name__ == "__main__":
    main()
