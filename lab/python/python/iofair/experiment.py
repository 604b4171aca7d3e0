"""Experiments: files, text in TOML, or dictionaries with the keys of such a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Mapping, Union

Source = Union[str, "os.PathLike[str]", Mapping[str, Any], "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """An experiment: `text` in TOML, or the file `path` if `text` is None. `path` names it in errors in any case."""

    path: str
    text: str | None = None


def load(source: Source) -> Experiment:
    """An experiment from a path, from text in TOML (which has a line break), or from a dictionary.

    A dictionary has the keys of an experiment file: strings, numbers, booleans, lists and dictionaries; a list of
    dictionaries is an array of tables, such as `client` and `variant`.
    """
    if isinstance(source, Experiment):
        return source
    if isinstance(source, Mapping):
        return Experiment("experiment", "".join(_table(dict(source), [])))
    text = os.fspath(source)
    return Experiment("experiment", text) if "\n" in text else Experiment(text)


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else _string(name)


def _string(text: str) -> str:
    out = ['"']
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char < " " or char == "\x7f":
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return "".join(out) + '"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(it)}" for key, it in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"an experiment has no values of type {type(value).__name__}: {value!r}")


def _is_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(it, Mapping) for it in value)


def _table(table: Mapping[str, Any], path: list[str]) -> list[str]:
    """The lines of a table: plain keys first, since they belong to the head before them."""
    lines = [f"{_key(k)} = {_value(v)}\n" for k, v in table.items() if not (isinstance(v, Mapping) or _is_tables(v))]
    for key, value in table.items():
        below = path + [_key(key)]
        if isinstance(value, Mapping):
            lines.append(f"[{'.'.join(below)}]\n")
            lines += _table(value, below)
        elif _is_tables(value):
            for one in value:
                lines.append(f"[[{'.'.join(below)}]]\n")
                lines += _table(one, below)
    return lines
