"""What a value must be, said where it is not."""

from __future__ import annotations

from lmtool.errors import UserError


def require(condition: bool, key: str, value: object, rule: str) -> None:
    """Raise UserError, naming the key, its value and the rule, unless the condition holds."""
    if not condition:
        raise UserError(f"{key}={value}: must be {rule}")
