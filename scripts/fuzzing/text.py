"""Files that other programs or people wrote, damaged: whatever the bytes, they are refused in a line, or read right.

Right files are edited, some before and some after they are packed; most are read by functions, up to 40 in one child,
some by whole commands.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import lmtool
from fuzzing import commands, formats
from fuzzing.campaign import Fault, Generator, Wrong, try_all
from fuzzing.child import files_of
from fuzzing.damage import edited, edits, members, packed
from fuzzing.formats import Given
from lmtool.errors import UserError
from lmtool.ngram.models.word_classes import WordClasses

FILE_LIMIT = 8  # seconds of one file
SUFFIXES = [".gz", ".xz", ".bz2", ".zst", ".zip"]

# fmt: off
TEXT = "the cat sat on the mat\n\na dog ran , the cat sat\nthe ünï dog ran\n"
TAGGED = "the/DT cat/NN sat/V on/IN a/b/c /x mat/\n"
QUESTIONS = "Q the cat a dog\nC the cat _1_\nQ sat on mat ran\nC a dog sat\n"
MOSES = "0 ||| the cat sat ||| lm: 1 ||| -3\n0 ||| the dog ||| lm: 2 ||| -4.5\n1 ||| a ||| lm: 1\n"
KALDI = "utt-a-1 the cat sat\nutt-a-2 the dog\nutt-b-1\n"
REFERENCES = "utt-a the cat sat\nutt-b a\n"
ANSWERS = "id,1,2,3,4\n1,0,1,0,0\n2,1,0,0,0\n"
KENLM = ("the=3 2 -0.6\tcat=2 2 -0.9\t</s>=1 3 -1.25\tTotal: -2.75 OOV: 0\n"
         "a=4 1 -1.5\t</s>=1 2 -0.1\tTotal: -1.6 OOV: 0\n"
         "Perplexity including OOVs:\t6.1\nPerplexity excluding OOVs:\t6.1\nOOVs:\t0\nTokens:\t5\n")
SRILM = ("the cat\n\tp( the | <s> ) \t= [2gram] 0.25 [ -0.6020600 ]\n\tp( cat | the ...) \t= [2gram] 0.1 [ -1 ]\n"
         "\tp( </s> | cat ...) \t= [OOV] 0 [ -inf ]\n1 sentences, 2 words, 0 OOVs\n\n")
TSV = "word\tlog10p\tother\nthe\t-0.5\tx\ncat\t-1.25e0\ty\n</s>\t-inf\tz\n"
TREE = ("the\t00\ncat\t010\n</s>\t011\na\t100\nsat\t1010\ndog\t1011\non\t1100\nmat\t1101\n"
        "ran\t1110\nünï\t11110\n<unk>\t11111\n")
CLASSES = "the\tA\ncat\tB\na\tA\ndog\tB\nran\tC\nsat\tC\non\tD\n"
SRILM_CLASSES = "A 0.5 the\nA 0.5 a\nB 0.7 cat\nB 0.3 dog\n"
VOCABULARY = "the\t9\ncat\t5\n</s>\t5\na\\tb\t4\n<unk>\t0\n<s>\t0\n"
DOCUMENTS = '{"text": "the cat sat\\na dog", "n": 1}\n{"n": 2, "text": null}\n\n{"text": "the ünï ran\\r\\non"}\n'
COUNTS = "<s>\t4\n</s>\t4\nthe\t5\ncat\t2\na\t1\n<s> the\t4\nthe cat\t2\ncat </s>\t2\n<s> the cat\t2\nthe cat </s>\t2\n"
# Right files beside the damaged one.
RIGHT = {
    "right-questions.txt": QUESTIONS, "right-moses.txt": MOSES, "right-kaldi.txt": KALDI,
    "right-references.txt": REFERENCES, "right-kenlm.txt": KENLM, "right-srilm.txt": SRILM, "right-scores.tsv": TSV,
}


class Kind(NamedTuple):
    """Files of one kind. read: their reader, beside which formats may have a plain one. bases: right contents (@: made
    by a writer). packs: suffixes. words: a command for it. agrees: whether what the plain reader accepts may not be
    refused.
    """

    name: str
    read: Callable[[Given], Any]
    bases: list[str]
    packs: Sequence[str] = ()
    words: str = ""
    agrees: bool = False


PREPROCESS = "preprocess data=text data.valid=valid.txt data.train"
WITH_TRAIN = f"{PREPROCESS}=train.txt"
HSOFTMAX = " ".join(["train", *commands.NEURAL, "model=hsoftmax"])
KINDS = [
    Kind("t.txt", formats.text, [TEXT, TAGGED], SUFFIXES, f"{PREPROCESS}=FILE", agrees=True),
    Kind("s.txt", formats.scored, [TEXT], SUFFIXES, "score run=kn text=FILE to=to.tsv"),
    Kind("d.jsonl", formats.documents, [DOCUMENTS], SUFFIXES[:4],
         f"{PREPROCESS}=FILE data.column=text", agrees=True),
    Kind("s.jsonl", formats.scored, [DOCUMENTS], SUFFIXES[:4],
         "score run=kn text=FILE column=text to=x.tsv"),
    Kind("w.txt", formats.word_list, ["the\ncat\na dog\n", "1 the\n2 cat\n", "<unk>\nünï\n"],
         SUFFIXES, f"{WITH_TRAIN} data.vocabulary.file=FILE", agrees=True),
    Kind("q.txt", formats.questions, [QUESTIONS], SUFFIXES, f"{WITH_TRAIN} data.cloze_valid=FILE"),
    Kind("answers.csv", formats.answers, [ANSWERS], SUFFIXES,
         f"{WITH_TRAIN} data.cloze_valid=right-questions.txt data.cloze_valid_answers=FILE"),
    Kind("n.txt", formats.nbest, [MOSES, KALDI], SUFFIXES, "rescore run=kn nbest=FILE threads=1"),
    Kind("costs.txt", formats.nbest, ["utt-a-1 3.5\nutt-a-2 1\nutt-b-1 2\n"], SUFFIXES,
         "rescore run=kn nbest=right-kaldi.txt costs=FILE"),
    Kind("refs.txt", formats.references, ["the cat\na\n", REFERENCES], SUFFIXES,
         "rescore run=kn nbest=right-moses.txt reference=FILE"),
    Kind("k.txt", formats.scores, [KENLM], SUFFIXES,
         "compare runs=[FILE,right-kenlm.txt] resamples=10"),
    Kind("d.ppl", formats.scores, [SRILM], SUFFIXES,
         "ensemble runs=[FILE,right-srilm.txt] threads=1"),
    Kind("k.tsv", formats.scores, [TSV], SUFFIXES,
         "compare runs=[FILE,right-scores.tsv] resamples=10"),
    Kind("tree.txt", formats.tree, [TREE], [], f"{HSOFTMAX} tree=file tree.path=FILE"),
    Kind("own.txt", formats.own_classes, [CLASSES, SRILM_CLASSES], [],
         "train data=toy threads=1 model=class_ngram model.file=FILE"),
    Kind("run-classes.txt", formats.run_classes, ["@classes"]),
    Kind("vocabulary.txt", formats.vocabulary_file, [VOCABULARY]),
    Kind("a.arpa", formats.arpa, ["@arpa", "@arpa.kenlm"], SUFFIXES,
         "score arpa=FILE text=valid.txt to=to.tsv"),
    Kind("c.tsv", formats.counts, [COUNTS, "@counts"], SUFFIXES,
         "train data=text data.valid=valid.txt model=ngram counts=table counts.paths=[FILE] threads=1"),
    Kind("p.parquet", formats.parquet, ["@parquet"], [], f"{PREPROCESS}=FILE data.column=words"),
    Kind("tokenizer.json", formats.pieces, ["@tokenizer"], [],
         f"{WITH_TRAIN} data.vocabulary.unit=bpe data.vocabulary.file=FILE"),
    Kind("s.model", formats.pieces, ["@bpe.model", "@unigram.model"], [],
         f"{WITH_TRAIN} data.vocabulary.unit=unigram data.vocabulary.file=FILE"),
    Kind("bomb.txt", formats.bomb, [f"@bomb{suffix}" for suffix in SUFFIXES], [], f"{PREPROCESS}=FILE"),
]
# fmt: on
_made: dict[str, bytes] = {}  # bases that lmtool's own writers make, by their names


@st.composite
def files(draw: st.DrawFn) -> list[Any]:
    """Draw the number of a kind and of a base, edits, a suffix, edits of the packed bytes, and a variant."""
    number = draw(st.integers(0, len(KINDS) - 1))
    kind = KINDS[number]
    suffix = draw(st.sampled_from(kind.packs)) if kind.packs and draw(st.integers(0, 3)) == 3 else ""
    after = draw(edits(2)) if suffix and draw(st.booleans()) else []
    base = draw(st.integers(0, len(kind.bases) - 1))
    return [number, base, draw(edits()), suffix, after, draw(st.integers(0, 15))]


def prepare() -> None:
    """Make the right files, and read each once: this compiles what reads them, and shows that they are right."""
    commands.prepare()
    if _made:
        return
    with chdir(commands.SHARED):
        _right_files(Path())
        _made.update(_bases())
        for number, kind in enumerate(KINDS):
            for base in range(len(kind.bases)) if kind.read is not formats.bomb else []:
                if not any([_is_right([number, base, [], "", [], k]) for k in range(16)]):
                    raise RuntimeError(f"{kind.name}, {base}: refused in every variant")
        for path in [*Path().glob("given-*"), *Path().glob("*best*.txt")]:
            path.unlink()


def _bases() -> dict[str, bytes]:
    """Return bases by lmtool's own writers, made in a folder with runs."""
    lmtool.train("ngram", lmtool.Corpus.from_texts(TEXT.split("\n"), ["the cat"]), out="small")
    for name in ("small.arpa", "small.tsv"):
        lmtool.export("small", name)
    vocabulary = formats.VOCABULARY
    class_of = np.array([0, 1, 2, 0, 3, 1, 3, 1, 3, 4, 5, 6])
    WordClasses.of(class_of, "ABCDEFG", vocabulary).save(Path("small.classes"))
    words = pa.table({"words": ["the", "cat", "</s>", "the cat", "ünï"], "count": [3, 2, 2, 1, 1]})
    pq.write_table(words, "small.parquet")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet))  # type: ignore[call-arg]
    made = {f"@{name}": Path(f"small.{name}").read_bytes() for name in ("arpa", "classes", "parquet")}
    made |= {"@arpa.kenlm": made["@arpa"].partition(b"\n")[2], "@counts": Path("small.tsv").read_bytes()}
    made |= {"@tokenizer": tokenizer.to_str().encode(), "@bpe.model": _sentencepiece(2)}
    made |= {"@unigram.model": _sentencepiece(1)}
    part = b"a\n" * (4 << 20)
    made |= {f"@bomb{suffix}": packed(part, suffix) * 40 for suffix in SUFFIXES[:-1]}
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for number in range(40):
                archive.writestr(f"{number}.txt", part)
        made["@bomb.zip"] = file.getvalue()
    for path in Path().glob("small.*"):
        path.unlink()
    return made


def _sentencepiece(model_type: int) -> bytes:
    """Return a .model file with byte fallback. model_type: 1 unigram, 2 BPE."""
    model = sentencepiece_model_pb2.ModelProto()
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    learned = ["\u2581t", "he", "\u2581the", "\u2581a", "at", "\u2581", *"thecasdogmrn"]
    pieces += [(piece, -float(rank), 1) for rank, piece in enumerate(learned)]
    for piece, score, kind in pieces:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type, model.trainer_spec.byte_fallback = model_type, True
    return bytes(model.SerializeToString())


def contents_of(file: list[Any]) -> tuple[str, bytes, list[bytes]]:
    """Return the name and the bytes of a file as `files` draws it, and what is packed in it unless that is damaged."""
    number, base, changes, suffix, after, _ = file
    kind = KINDS[number]
    text = kind.bases[base]
    raw = edited(_made[text] if text.startswith("@") else text.encode(), changes)
    if kind.read is formats.bomb:
        return f"bomb.txt{text.removeprefix('@bomb')}", raw, []
    return kind.name + suffix, edited(packed(raw, suffix), after), [] if after else members(raw, suffix)


def read(file: list[Any], folder: Path | None = None) -> None:
    """Write a file and read it in both ways. Raises Wrong if they differ, UserError, or what else a reader raises."""
    name, raw, unpacked = contents_of(file)
    path = (folder or Path.cwd()) / (name if name.startswith(("answers", "costs")) else f"given-{name}")
    path.write_bytes(raw)
    compare(KINDS[file[0]], Given(path, unpacked, *(bool(file[-1] >> bit & 1) for bit in range(4))))


def compare(kind: Kind, given: Given) -> None:
    """Read a file in both ways. Raises Wrong if they differ, UserError, or what else a reader raises."""
    name = kind.read.__name__
    plainly, reason = None, ""
    try:
        plainly = getattr(formats, f"plain_{name}", lambda given: None)(given) if given.unpacked else None
    except (ValueError, KeyError, IndexError) as error:
        reason = str(error) or type(error).__name__
    try:
        ours = kind.read(given)
    except UserError as error:
        if kind.agrees and not reason and given.unpacked:
            raise Wrong(f"{name} is refused: {error}") from error
        raise
    if reason:
        raise Wrong(f"{name} is accepted: {reason}")
    if ours is not None and plainly is not None:
        formats.require_same(ours, plainly, name)


def _is_right(file: list[Any]) -> bool:
    try:
        read(file)
    except UserError:
        return False
    return True


def check(case: Any, place: Path) -> list[str]:
    """Read the files of a case in a child, or run a command with one; return the refusals. Raises Fault."""
    if isinstance(case, dict):
        name, raw, _ = contents_of(case["command"])
        words = KINDS[case["command"][0]].words.replace("FILE", name).split()
        return commands.checked(words, place, lambda work: (work / name).write_bytes(raw) and None) if words else []
    refused = try_all(case, read, place, seconds=FILE_LIMIT, name=lambda file: KINDS[file[0]].name, make=_right_files)
    if left := files_of(place / "tmp"):
        raise Fault("a temporary file is left behind", str(left))
    return refused


def _right_files(folder: Path) -> None:
    for name, text in RIGHT.items():
        (folder / name).write_text(text, encoding="utf-8")


CASES = st.one_of(
    *[st.integers(1, 40).flatmap(lambda size: st.lists(files(), min_size=size, max_size=size))] * 9,
    files().map(lambda file: {"command": file}),
)
CAMPAIGNS = {"text": Generator(CASES, check, prepare, lambda case: 1 if isinstance(case, dict) else len(case))}
