"""The types of settings, read from the source of their dataclasses.

Nothing is imported or run: completion answers at once, and an option's file from outside lmtool is not trusted for it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lmtool.config.options import HOMES, python_file

PACKAGE = Path(__file__).resolve().parent.parent
TRAINING = ("training", "TrainingConfig")  # the one group without kinds
TEXT = frozenset({"str"})


@dataclass(frozen=True, slots=True)
class SettingType:
    """What a setting may be.

    names: of Python's types, `None` and `Any` among them; empty where they are not known. values: the members of an
    enumeration. item: the type of a list's items. fields: the settings of a dataclass, by name.
    """

    names: frozenset[str] = frozenset()
    values: tuple[str, ...] = ()
    item: SettingType | None = None
    fields: dict[str, SettingType] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether it is a string, or null, and nothing else."""
        return bool(self.names) and self.names <= TEXT | {"None"}

    @property
    def may_be_text(self) -> bool:
        """Whether it may be a string, alone or in a list."""
        return bool(self.names & {"str", "Any"}) or (self.item is not None and self.item.may_be_text)

    @property
    def is_free(self) -> bool:
        """Whether its keys are the user's own: those of a dictionary, or not known."""
        return not self.names or bool(self.names & {"Any", "dict"})

    def below(self, path: list[str]) -> SettingType | None:
        """The type of a setting inside this one; None where there is no such setting."""
        if not path:
            return self
        inner = self.fields.get(path[0])
        return inner.below(path[1:]) if inner is not None else SettingType() if self.is_free else None


def verb_types(verb: str) -> dict[str, SettingType]:
    """The settings of a verb, those of its groups excepted; their class is SETTINGS of its command."""
    path = PACKAGE / "commands" / f"{verb}.py"
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SETTINGS":
            name = ast.unparse(node.value)
            home = _home(path, name)
            types = _fields(home, name) if home is not None else {}
            return {key: type for key, type in types.items() if key not in HOMES and key != TRAINING[0]}
    return {}


def option_types(group: str, kind: str) -> dict[str, SettingType]:
    """The settings of an option; empty where its Python file is not found or holds no settings."""
    from lmtool.config.groups import BASES

    if group == TRAINING[0]:
        return _fields(PACKAGE / "config" / f"{TRAINING[0]}.py", TRAINING[1])
    path = python_file(group, kind) if group in HOMES else None
    if path is None:
        return {}
    names = [name for name in _classes(path) if BASES[group].__name__ in _ancestors(path, name)]
    named = [name for name in names if f"kind: str = '{kind}'" in map(ast.unparse, _classes(path)[name].body)]
    return _fields(path, (named or names)[0]) if names else {}


@cache
def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])  # whoever runs it will say so


@cache
def _classes(path: Path) -> dict[str, ast.ClassDef]:
    """The classes that a file defines."""
    return {node.name: node for node in _tree(path).body if isinstance(node, ast.ClassDef)}


def _home(path: Path, name: str) -> Path | None:
    """The file that defines a class which is known in a file by its name; None where it is not found."""
    if name in _classes(path):
        return path
    for node in _tree(path).body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            parts = (node.module or "").split(".")
            if node.level:
                folder = path.parents[node.level - 1]
            elif parts[0] == PACKAGE.name:
                folder = PACKAGE.parent
            else:
                return None
            return folder.joinpath(*parts).with_suffix(".py")
    return None


def _bases(path: Path, name: str) -> list[tuple[Path, str]]:
    """The base classes of a class, each with the file that defines it, where they are found."""
    names = [ast.unparse(base).rpartition(".")[2] for base in _classes(path)[name].bases]
    homes = [(_home(path, base), base) for base in names]
    return [(home, base) for home, base in homes if home is not None and base in _classes(home)]


def _ancestors(path: Path, name: str) -> set[str]:
    found: set[str] = set()
    for home, base in _bases(path, name):
        found |= {base} | _ancestors(home, base)
    return found


def _fields(path: Path, name: str) -> dict[str, SettingType]:
    """The fields of a dataclass, those of its base classes first."""
    types: dict[str, SettingType] = {}
    for home, base in _bases(path, name):
        types |= _fields(home, base)
    for node in _classes(path)[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = node.annotation
            if "ClassVar" not in ast.unparse(annotation):
                types[node.target.id] = _type(annotation, path)
    return types


def _type(annotation: ast.expr, path: Path) -> SettingType:
    match annotation:
        case ast.Constant(value=None):
            return SettingType(frozenset({"None"}))
        case ast.Constant(value=str(text)):
            return _type(ast.parse(text, mode="eval").body, path)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            one, other = _type(left, path), _type(right, path)
            values, fields = one.values + other.values, one.fields | other.fields
            return SettingType(one.names | other.names, values, one.item or other.item, fields)
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return SettingType(frozenset({"list"}), item=_type(item, path))
        case ast.Subscript(value=ast.Name(id=name)):
            return SettingType(frozenset({name}))
        case ast.Name(id=name):
            return _named(name, path)
    return SettingType()


def _named(name: str, path: Path) -> SettingType:
    home = _home(path, name)
    if home is None or name not in _classes(home):
        return SettingType(frozenset({name}))
    if any(ast.unparse(base).endswith("Enum") for base in _classes(home)[name].bases):
        members = [node.targets[0] for node in _classes(home)[name].body if isinstance(node, ast.Assign)]
        return SettingType(frozenset({name}), values=tuple(m.id for m in members if isinstance(m, ast.Name)))
    return SettingType(frozenset({name}), fields=_fields(home, name))
