"""Files that other programs or people wrote, damaged: whatever the bytes, they are refused in a line, or read right.

Right files are edited, some before and some after they are packed; most are read by functions, up to 40 in one child,
some by whole commands.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import struct
import sys
import traceback
import warnings
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing import commands, readings
from fuzzing.campaign import Fault
from fuzzing.child import files_of, forked
from fuzzing.kinds import KENLM, KINDS, RIGHT, SRILM, TEXT, TSV
from fuzzing.mutations import SUFFIXES, edited, edits, packed

LIMIT = 40.0  # seconds of one child
OF_ONE = 8  # seconds of one file

_made: dict[str, bytes] = {}  # bases that lmtool's own writers make, by their names


@st.composite
def files(draw: st.DrawFn) -> list[Any]:
    """The number of a kind and of a base, edits, a suffix, edits of the packed bytes, and a variant."""
    number = draw(st.integers(0, len(KINDS) - 1))
    kind = KINDS[number]
    suffix = draw(st.sampled_from(kind.packs)) if kind.packs and draw(st.integers(0, 3)) == 3 else ""
    after = draw(edits(2)) if suffix and draw(st.booleans()) else []
    base = draw(st.integers(0, len(kind.bases) - 1))
    return [number, base, draw(edits()), suffix, after, draw(st.integers(0, 15))]


CASES = st.one_of(
    *[st.integers(1, 40).flatmap(lambda size: st.lists(files(), min_size=size, max_size=size))] * 9,
    files().map(lambda file: {"command": file}),
)


def count(case: Any) -> int:
    """The files of a case."""
    return 1 if isinstance(case, dict) else len(case)


def prepare() -> None:
    """Make the right files, and read each once: this compiles what reads them, and shows that they are right."""
    commands.prepare()
    if _made:
        return
    os.chdir(commands.SHARED)
    for name, text in (RIGHT | {"right-kenlm.txt": KENLM, "right-srilm.txt": SRILM, "right-scores.tsv": TSV}).items():
        Path(name).write_text(text, encoding="utf-8")
    _made.update(_bases())
    for number, kind in enumerate(KINDS):
        for base in range(len(kind.bases)):
            if kind.read is not readings.bomb and not any(
                [_is_right([number, base, [], "", [], k]) for k in range(16)]
            ):
                raise RuntimeError(f"{kind.name}, {base}: refused in every variant")
    for path in Path().iterdir():
        if path.name.startswith("given-") or path.name in ("best.txt", "nbest.txt", "nbest-costs.txt"):
            path.unlink()
    os.chdir("..")


def _bases() -> dict[str, bytes]:
    """Bases by lmtool's own writers, in a folder with runs."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    import lmtool
    from lmtool.ngram.models.word_classes import WordClasses

    corpus = lmtool.Corpus.from_texts(TEXT.split("\n"), ["the cat"])
    lmtool.train("ngram", corpus, out="small")
    for name in ("small.arpa", "small.tsv"):
        lmtool.export("small", name)
    arpa = Path("small.arpa").read_bytes()
    vocabulary = readings._vocabulary()
    WordClasses.of(np.arange(12) // 2 * 0 + np.array([0, 1, 2, 0, 3, 1, 3, 1, 3, 4, 5, 6]), "ABCDEFG", vocabulary).save(
        Path("classes.txt"), vocabulary.words
    )
    words = pa.table({"words": ["the", "cat", "</s>", "the cat", "ünï"], "count": [3, 2, 2, 1, 1]})
    pq.write_table(words, "small.parquet")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet))  # type: ignore[call-arg]
    made = {
        "@arpa": arpa,
        "@arpa.kenlm": arpa.partition(b"\n")[2],
        "@counts": Path("small.tsv").read_bytes(),
        "@classes": Path("classes.txt").read_bytes(),
        "@parquet": Path("small.parquet").read_bytes(),
        "@tokenizer": tokenizer.to_str().encode(),
        "@bpe.model": _sentencepiece(2),
        "@unigram.model": _sentencepiece(1),
    }
    part = b"a\n" * (4 << 20)
    made |= {f"@bomb{suffix}": packed(part, suffix) * 40 for suffix in SUFFIXES[:-1]}
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for number in range(40):
                archive.writestr(f"{number}.txt", part)
        made["@bomb.zip"] = file.getvalue()
    for name in ("classes.txt", "small.parquet", "small.tsv", "small.arpa"):
        Path(name).unlink()
    return made


def _sentencepiece(model_type: int) -> bytes:
    """A .model file with byte fallback. model_type: 1 unigram, 2 BPE."""

    def field(number: int, value: bytes | int | float) -> bytes:
        if isinstance(value, bytes):
            size = len(value)
            return (
                bytes([number << 3 | 2])
                + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7]))
                + value
            )
        return (
            bytes([number << 3 | 5]) + struct.pack("<f", value)
            if isinstance(value, float)
            else bytes([number << 3, value])
        )

    pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
    ]
    for rank, piece in enumerate(["\u2581t", "he", "\u2581the", "\u2581a", "at", "\u2581", *"thecasdogmrn"]):
        pieces.append((piece, -float(rank), 1))
    out = b"".join(field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in pieces)
    return out + field(2, field(3, model_type) + b"\x98\x02\x01")  # 35: byte_fallback


def content_of(file: list[Any]) -> tuple[str, bytes]:
    """The name and the bytes of a file, which are as `files` draws them, or the bytes themselves, in Base64."""
    if isinstance(file[1], str):
        return KINDS[file[0]].name, base64.b64decode(file[1])
    number, base, changes, suffix, after, _ = file
    kind = KINDS[number]
    text = kind.bases[base]
    right = _made[text] if text.startswith("@") else text.encode()
    if text.startswith("@bomb"):
        suffix = text.removeprefix("@bomb")
        return f"{kind.name}{suffix}", edited(right, changes)
    return f"{kind.name}{suffix}", edited(packed(edited(right, changes), suffix), after)


def read(file: list[Any], folder: Path) -> None:
    """Write a file and read it. Raises Wrong, or whatever a reader raises but UserError."""
    from lmtool.errors import UserError

    name, raw = content_of(file)
    path = folder / f"given-{name}"
    path = path.with_name(name) if name.startswith(("answers", "costs", "own")) else path
    path.write_bytes(raw)
    suffix = Path(name).suffix if Path(name).suffix in SUFFIXES else ""
    try:
        KINDS[file[0]].read(readings.Given(path, raw, suffix, file[-1]))
    except UserError as error:
        said = str(error)
        if folder == Path():
            raise
        if not said or not said.isprintable() or len(said) > 4000:
            raise readings.Wrong(f"a message of {len(said)} letters: {said[:200]!r}") from error


def _is_right(file: list[Any]) -> bool:
    from lmtool.errors import UserError

    try:
        read(file, Path())
    except UserError:
        return False
    return True


def check(case: Any, place: Path) -> None:
    """Read the files of a case in a child, or run a command with one. Raises Fault."""
    if isinstance(case, dict):
        file = case["command"]
        name, raw = content_of(file)
        words = [word.replace("FILE", name) for word in KINDS[file[0]].words]
        if words:
            commands.checked(words, place, lambda work: (work / name).write_bytes(raw) and None)
        return
    for folder in ("work", "tmp"):
        (place / folder).mkdir()
    for name, text in RIGHT.items():
        (place / "work" / name).write_text(text, encoding="utf-8")
    place_of = str(place)
    outcome = forked(
        lambda: _read_all(case, place / "at"),
        place / "work",
        limit=LIMIT,
        environment={"HOME": place_of, "TMPDIR": f"{place_of}/tmp"},
    )
    at = int((place / "at").read_text() or 0) if (place / "at").exists() else 0
    kind = KINDS[case[at][0]].name
    report = f"file {at + 1}: {json.dumps([case[at]])[:1500]}\n{outcome.err[-2500:]}"
    if outcome.code is None:
        raise Fault(f"{kind}: it does not end", report)
    if outcome.code < 0:
        raise Fault(f"{kind}: signal {-outcome.code}", report)
    if outcome.code:
        last = outcome.err.strip().splitlines()
        raise Fault(f"{kind}: {last[-1] if last else outcome.code}", report)
    if left := files_of(place / "tmp"):
        raise Fault("a temporary file is left behind", str(left))


class _Slow(BaseException):
    """A file takes too long."""


def _read_all(case: list[Any], at: Path) -> int:
    """Read files in this process; the last line said names the fault."""
    warnings.simplefilter("error", RuntimeWarning)

    def too_slow(*_: object) -> None:
        raise _Slow

    signal.signal(signal.SIGALRM, too_slow)
    for number, file in enumerate(case):
        at.write_text(str(number))
        signal.alarm(OF_ONE)
        try:
            read(file, Path.cwd())
        except BaseException as error:
            signal.alarm(0)
            traceback.print_exc(file=sys.stderr)
            print(readings.signature_of(error), file=sys.stderr)
            return 1
        signal.alarm(0)
    return 0
