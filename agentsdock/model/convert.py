"""The one cattrs converter: strict about primitives, silent about unknown keys.

State on disk may come from a newer release, so extra keys are ignored; a value of the wrong
type is an error that names the field.
"""

from typing import Any

import cattrs
import cattrs.gen


def _strict(kind: type) -> Any:
    def structure(value: Any, _: type) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return structure


def _number(value: Any, _: type) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return float(value)


def make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(float, _number)
    return converter


converter = make_converter()
