"""Makes a CLI of a module that has a ``main``."""

import pathlib
import sys

import agentsdock


def install_cli(
    folder: pathlib.Path, module: pathlib.Path, name: str = "cursor-agent"
) -> pathlib.Path:
    """Write the program ``name``, which finds the module, its neighbours and this package.

    The module and what it imports may use the standard library only: that starts quickly.
    """
    homes = [str(module.parent), str(pathlib.Path(agentsdock.__file__).parents[1])]
    program = folder / name
    program.write_text(
        f"#!{sys.executable} -IS\nimport os, sys\nsys.path[:0] = {homes!r}\n"
        f"import {module.stem}\nos._exit({module.stem}.main())\n"
    )
    program.chmod(0o755)
    return program
