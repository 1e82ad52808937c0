"""The small faults that `./scripts/measure mutations` puts into a module, one at a time, by Python's ast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
NAMES = {"min": "max", "minimum": "maximum", "amin": "amax", "argmin": "argmax", "any": "all", "floor": "ceil"}
NAMES |= {"log1p": "log", "expm1": "exp", "clamp_min": "clamp_max", "ones": "zeros", "ones_like": "zeros_like"}
NAMES |= {after: before for before, after in NAMES.items() if after not in ("log", "exp")}
DROPPED = {"exp", "log", "sqrt", "abs", "square", "cumsum", "sort", "sorted", "unique", "reversed", "expm1", "log1p"}
DROPPED |= {"sigmoid", "tanh", "log_softmax", "relu"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of a module's text: the characters from `begin` to before `end` become `text`.

    line: of the change; lines: those of its statement, one of which a test has to run; at_import: whether these run
    when the module is imported.
    """

    line: int
    lines: tuple[int, ...]
    begin: int
    end: int
    text: str
    change: str
    at_import: bool


def with_fault(source: str, fault: Fault) -> str:
    """The module with the fault in it."""
    return source[: fault.begin] + fault.text + source[fault.end :]


def faults(source: str) -> list[Fault]:
    """All faults of a module.

    Comparisons, arithmetic and logic have their operator swapped, numbers are one more or less, True and False change
    places, a condition or a minus is dropped, min becomes max, a function such as exp is not applied, a call for its
    effect is left out, and a function returns None. Annotations, decorators, docstrings, messages and what is below
    TYPE_CHECKING stay.
    """
    walk = _Walk(source)
    walk.statements(ast.parse(source).body, at_import=True)
    return walk.found


class _Walk:
    def __init__(self, source: str) -> None:
        self.source = source
        starts, at = [], 0
        for line in source.splitlines(keepends=True):
            starts.append(at)
            at += len(line)
        self.starts = starts
        self.rows = source.splitlines(keepends=True)
        self.found: list[Fault] = []

    def statements(self, body: list[ast.stmt], *, at_import: bool) -> None:
        for statement in body:
            self.statement(statement, at_import)

    def statement(self, node: ast.stmt, at_import: bool) -> None:
        self.at_import = at_import
        match node:
            case ast.FunctionDef():
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    if default is not None:
                        self.expression(default, node.lineno, default)
                self.statements(node.body, at_import=False)
            case ast.ClassDef():
                self.statements(node.body, at_import=at_import)
            case ast.If() | ast.While():
                if "TYPE_CHECKING" in ast.unparse(node.test):
                    return
                if isinstance(node.test, ast.Name | ast.Attribute | ast.Call) and isinstance(node, ast.If):
                    self.add(node.test, f"not {self.text(node.test)}", node.test)
                self.expression(node.test, node.lineno, node.test)
                self.statements([*node.body, *node.orelse], at_import=at_import)
            case ast.For():
                self.expression(node.iter, node.lineno, node.iter)
                self.statements([*node.body, *node.orelse], at_import=at_import)
            case ast.With():
                for item in node.items:
                    self.expression(item.context_expr, node.lineno, item.context_expr)
                self.statements(node.body, at_import=at_import)
            case ast.Try():
                self.statements([*node.body, *node.orelse, *node.finalbody], at_import=at_import)
                for handler in node.handlers:
                    self.statements(handler.body, at_import=at_import)
            case ast.Expr(value=ast.Call()):
                self.add(node, "pass", node)
                self.expression(node.value, node.lineno, node)
            case ast.Return(value=value) if value is not None:
                if not isinstance(value, ast.Constant) or value.value is not None:
                    self.add(value, "None", node)
                self.expression(value, node.lineno, node)
            case ast.AugAssign():
                if type(node.op) in ARITHMETIC:
                    swapped = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
                    self.add(node, ast.unparse(swapped), node)
                self.expression(node.value, node.lineno, node)
            case ast.Assign() | ast.AnnAssign():
                if node.value is not None:
                    self.expression(node.value, node.lineno, node)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    self.expression(target, node.lineno, node)
            case _:
                pass  # raise, assert, import, pass, docstrings

    def expression(self, root: ast.expr, line: int, statement: ast.AST) -> None:
        """The faults of an expression and what is in it, but for strings and annotations."""
        for node in _inside(root):
            match node:
                case ast.Compare(ops=[op]) if type(op) in COMPARE:
                    self.add(node, _swapped(node, COMPARE[type(op)]()), statement)
                case ast.BinOp() if type(node.op) in ARITHMETIC:
                    swapped = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
                    self.add(node, f"({ast.unparse(swapped)})", statement)
                case ast.BoolOp():
                    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                    self.add(node, f"({ast.unparse(ast.BoolOp(other, node.values))})", statement)
                case ast.UnaryOp(op=ast.Not() | ast.USub()):
                    self.add(node, f"({ast.unparse(node.operand)})", statement)
                case ast.Constant(value=bool(value)):
                    self.add(node, str(not value), statement)
                case ast.Constant(value=int() | float() as value):
                    self.add(node, repr(value + 1), statement)
                    if value >= 1:
                        self.add(node, repr(value - 1), statement)
                case ast.IfExp():
                    swapped = ast.IfExp(node.test, node.orelse, node.body)
                    self.add(node, f"({ast.unparse(swapped)})", statement)
                case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                    if name in NAMES:
                        function = ast.Name(NAMES[name])
                        if isinstance(node.func, ast.Attribute):
                            function = ast.Attribute(node.func.value, NAMES[name])  # type: ignore[assignment]
                        self.add(node, ast.unparse(ast.Call(function, node.args, node.keywords)), statement)
                    if name in DROPPED and not node.keywords:
                        if len(node.args) == 1:
                            self.add(node, f"({ast.unparse(node.args[0])})", statement)
                        elif isinstance(node.func, ast.Attribute) and not node.args:
                            self.add(node, f"({ast.unparse(node.func.value)})", statement)

    def text(self, node: ast.AST) -> str:
        return self.source[self.offset(node, end=False) : self.offset(node, end=True)]

    def offset(self, node: ast.AST, *, end: bool) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)  # type: ignore[attr-defined]
        # Columns count bytes.
        return self.starts[line - 1] + len(self.rows[line - 1].encode()[:column].decode())

    def add(self, node: ast.AST, text: str, statement: ast.AST) -> None:
        begin, end = self.offset(node, end=False), self.offset(node, end=True)
        before = " ".join(self.source[begin:end].split())
        lines = tuple(range(statement.lineno, (statement.end_lineno or 0) + 1))  # type: ignore[attr-defined]
        change = f"{before}  ->  {' '.join(text.split())}"
        self.found.append(Fault(node.lineno, lines, begin, end, text, change, self.at_import))  # type: ignore[attr-defined]


def _inside(root: ast.expr) -> Iterator[ast.expr]:
    """An expression and those in it; not those in strings and in calls that make errors."""
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr | ast.Lambda) and isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.expr):
            yield node
        stack.extend(ast.iter_child_nodes(node))


def _swapped(node: ast.Compare, op: ast.cmpop) -> str:
    return f"({ast.unparse(ast.Compare(node.left, [op], node.comparators))})"
