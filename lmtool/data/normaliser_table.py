"""The table by which SentencePiece normalises text: a double-array trie and the texts that its keys become.

The library that looks words up in it does not check it and ends the process' work where it is damaged; so every place
that a lookup can reach is checked before.

The form: the trie's size in bytes as uint32, its units as uint32, the texts in UTF-8, each ending in NUL (Yata's
darts-clone, and sentencepiece's normalizer.cc).
"""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np

LABELS = np.arange(1, 256)
AT_ONCE = 1 << 12  # nodes looked at together
IS_LEAF, VALUE = 1 << 31, (1 << 31) - 1


def require_table(table: bytes) -> None:
    """Raise ValueError for a table in which a lookup could leave the trie or the texts."""
    size = struct.unpack_from("<I", table)[0] if len(table) >= 4 else 0
    if not size or size % 4 or 4 + size > len(table):
        raise ValueError("the table that normalises is cut off")
    units = np.frombuffer(table[4 : 4 + size], dtype="<u4").astype(np.int64)
    texts = np.frombuffer(table[4 + size :], dtype=np.uint8)
    table[4 + size :].decode()
    begins = np.append((texts & 0xC0) != 0x80, True)  # where a character does, and the end
    offsets = (units >> 10) << ((units & 512) >> 6)
    seen = np.zeros(len(units) + 256, dtype=bool)
    waiting = offsets[:1]  # the places of nodes, from which their children's differ by a byte
    while len(waiting):
        nodes, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        places = nodes[:, None] ^ LABELS  # [N, 255]
        if places.max() >= len(units):
            raise ValueError("the table that normalises is damaged: a node is beyond its end")
        seen[nodes] = True
        children = places[(units[places] & (IS_LEAF | 0xFF)) == LABELS]
        following = children ^ offsets[children]
        ends = following[(units[children] >> 8) & 1 == 1]
        if len(ends) and ends.max() >= len(units):
            raise ValueError("the table that normalises is damaged: a node is beyond its end")
        values = units[ends] & VALUE
        if len(values) and (values.max() > len(texts) or not begins[values].all()):
            raise ValueError("the table that normalises is damaged: a text is beyond its end")
        if len(following) and following.max() >= len(seen):
            raise ValueError("the table that normalises is damaged: a node is beyond its end")
        waiting = np.unique(np.append(waiting, following[~seen[following]]))


def require_tables(value: Any) -> None:
    """Raise ValueError where a tokenizer.json, or a part of it, has a table as `require_table` refuses it."""
    if isinstance(value, dict):
        table = value.get("precompiled_charsmap")
        if isinstance(table, str):
            require_table(base64.b64decode(table))
        for part in value.values():
            require_tables(part)
    elif isinstance(value, list):
        for part in value:
            require_tables(part)
