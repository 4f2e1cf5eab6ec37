"""Filters as people write them: ``length > 200 and language == 'en'``.

An expression is parsed into Python's syntax tree and evaluated by the table below;
it can compare, count and combine, and reach nothing else: no attribute, no call but
the few named here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from hpcplat.errors import InvalidError

_LONGEST = 1000

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": len,
    "lower": lambda text: text.lower(),
    "words": lambda text: len(text.split()),
    "count": lambda text, part: text.count(part),
    "startswith": lambda text, part: text.startswith(part),
    "endswith": lambda text, part: text.endswith(part),
    "abs": abs,
    "min": min,
    "max": max,
}


class Filter:
    """A parsed expression over named values.

    Raises InvalidError for what is no expression, or holds what is not allowed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise InvalidError(
                f"An expression of {len(text)} characters.", f"Use at most {_LONGEST}."
            )
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise InvalidError(
                f"{text!r} is no expression ({error}).",
                "Write a comparison, as length > 200.",
            ) from error
        _check(self._tree, text)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Say whether the expression is true of these values.

        Raises InvalidError for an unknown name, or a value that does not fit.
        """
        try:
            return bool(_value(self._tree, names))
        except KeyError as error:
            raise InvalidError(
                f"{self.text!r} asks for {error}, which the record does not have.",
                f"It has: {', '.join(sorted(names))}.",
            ) from error
        except (TypeError, AttributeError, ZeroDivisionError) as error:
            raise InvalidError(
                f"{self.text!r} does not fit a record ({error}).",
                "Mend the expression.",
            ) from error


def _check(tree: ast.expr, text: str) -> None:
    for node in ast.walk(tree):
        call_of_known = isinstance(node, ast.Call) and (
            isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS
            and not node.keywords
        )
        known = (*_BINARY, *_COMPARE, *_UNARY, ast.And, ast.Or, ast.Load)
        plain = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant)
        if not (call_of_known or isinstance(node, (*known, *plain, *_CONTAINERS))):
            raise InvalidError(
                f"{text!r} holds {type(node).__name__}, which is not allowed.",
                f"Use comparisons, and, or, not, and {', '.join(_FUNCTIONS)}.",
            )


_CONTAINERS = (ast.Name, ast.Tuple, ast.List)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a field's)
    return _EVALUATORS[type(node)](node, names)


def _bool(node: Any, names: Mapping[str, Any]) -> Any:  # noqa: ANN401
    parts = (_value(part, names) for part in node.values)
    return all(parts) if isinstance(node.op, ast.And) else any(parts)


def _binary(node: Any, names: Mapping[str, Any]) -> Any:  # noqa: ANN401
    left, right = _value(node.left, names), _value(node.right, names)
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(node.op, ast.Mult) and not numbers:
        raise TypeError("only numbers are multiplied")
    return _BINARY[type(node.op)](left, right)


def _compare(node: Any, names: Mapping[str, Any]) -> bool:  # noqa: ANN401
    left = _value(node.left, names)
    for operation, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, names)
        if not _COMPARE[type(operation)](left, right):
            return False
        left = right
    return True


def _call(node: Any, names: Mapping[str, Any]) -> Any:  # noqa: ANN401
    arguments = [_value(part, names) for part in node.args]
    return _FUNCTIONS[node.func.id](*arguments)


_EVALUATORS: Mapping[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.BoolOp: _bool,
    ast.BinOp: _binary,
    ast.UnaryOp: lambda node, names: _UNARY[type(node.op)](_value(node.operand, names)),
    ast.Compare: _compare,
    ast.Constant: lambda node, names: node.value,
    ast.Name: lambda node, names: names[node.id],
    ast.Tuple: lambda node, names: tuple(_value(part, names) for part in node.elts),
    ast.List: lambda node, names: [_value(part, names) for part in node.elts],
    ast.Call: _call,
}
