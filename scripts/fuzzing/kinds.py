"""The kinds of files of the campaign `text`: what they hold when they are right, and what reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fuzzing import commands, readings
from fuzzing.mutations import SUFFIXES

# fmt: off
TEXT = "the cat sat on the mat\n\na dog ran , the cat sat\nthe ünï dog ran\n"
TAGGED = "the/DT cat/NN sat/V on/IN a/b/c /x mat/\n"
RIGHT = {
    "right-questions.txt": "Q the cat a dog\nC the cat _1_\nQ sat on mat ran\nC a dog sat\n",
    "right-moses.txt": "0 ||| the cat sat ||| lm: 1 ||| -3\n0 ||| the dog ||| lm: 2 ||| -4.5\n1 ||| a ||| lm: 1\n",
    "right-kaldi.txt": "utt-a-1 the cat sat\nutt-a-2 the dog\nutt-b-1\n",
    "right-references.txt": "utt-a the cat sat\nutt-b a\n",
}
ANSWERS = "id,1,2,3,4\n1,0,1,0,0\n2,1,0,0,0\n"
KENLM = (
    "the=3 2 -0.6\tcat=2 2 -0.9\t</s>=1 3 -1.25\tTotal: -2.75 OOV: 0\na=4 1 -1.5\t</s>=1 2 -0.1\tTotal: -1.6 OOV: 0\n"
)
KENLM += "Perplexity including OOVs:\t6.1\nPerplexity excluding OOVs:\t6.1\nOOVs:\t0\nTokens:\t5\n"
SRILM = "the cat\n\tp( the | <s> ) \t= [2gram] 0.25 [ -0.6020600 ]\n\tp( cat | the ...) \t= [2gram] 0.1 [ -1 ]\n"
SRILM += "\tp( </s> | cat ...) \t= [OOV] 0 [ -inf ]\n1 sentences, 2 words, 0 OOVs\n\n"
TSV = "word\tlog10p\tother\nthe\t-0.5\tx\ncat\t-1.25e0\ty\n</s>\t-inf\tz\n"
TREE = "the\t00\ncat\t010\n</s>\t011\na\t100\nsat\t1010\ndog\t1011\non\t1100\nmat\t1101\n"
TREE += "ran\t1110\nünï\t11110\n<unk>\t11111\n"
CLASSES = "the\tA\ncat\tB\na\tA\ndog\tB\nran\tC\nsat\tC\non\tD\n"
SRILM_CLASSES = "A 0.5 the\nA 0.5 a\nB 0.7 cat\nB 0.3 dog\n"
VOCABULARY = "the\t9\ncat\t5\n</s>\t5\na\\tb\t4\n<unk>\t0\n<s>\t0\n"
DOCUMENTS = '{"text": "the cat sat\\na dog", "n": 1}\n{"n": 2, "text": null}\n\n{"text": "the ünï ran\\r\\non"}\n'
COUNTS = "<s>\t4\n</s>\t4\nthe\t5\ncat\t2\na\t1\n<s> the\t4\nthe cat\t2\ncat </s>\t2\n<s> the cat\t2\nthe cat </s>\t2\n"


class Kind(NamedTuple):
    """Files of one kind. name: of the file; bases: what it may hold when it is right; packs: the suffixes it may have
    besides. words: a command that reads it.
    """

    name: str
    read: Callable[[readings.Given], None]
    bases: list[str]
    packs: list[str]
    words: list[str]


PREPROCESS = ["preprocess", "data=text", "data.valid=valid.txt"]
TRAIN = ["train", "data=toy", "threads=1"]
KINDS = [
    Kind("t.txt", readings.text, [TEXT, TAGGED], SUFFIXES, [*PREPROCESS, "data.train=FILE"]),
    Kind("s.txt", readings.scored, [TEXT], SUFFIXES, ["score", "run=kn", "text=FILE", "to=to.tsv"]),
    Kind("d.jsonl", readings.documents, [DOCUMENTS], SUFFIXES[:4],
         [*PREPROCESS, "data.train=FILE", "data.column=text"]),
    Kind("s.jsonl", readings.scored, [DOCUMENTS], SUFFIXES[:4],
         ["score", "run=kn", "text=FILE", "column=text", "to=x.tsv"]),
    Kind("w.txt", readings.word_list, ["the\ncat\na dog\n", "1 the\n2 cat\n", "<unk>\nünï\n"], SUFFIXES,
         [*PREPROCESS, "data.train=train.txt", "data.vocabulary.file=FILE"]),
    Kind("q.txt", readings.cloze, [RIGHT["right-questions.txt"]], SUFFIXES,
         [*PREPROCESS, "data.train=train.txt", "data.cloze_valid=FILE"]),
    Kind("answers.csv", readings.cloze, [ANSWERS], SUFFIXES,
         [*PREPROCESS, "data.train=train.txt", "data.cloze_valid=right-questions.txt",
          "data.cloze_valid_answers=FILE"]),
    Kind("n.txt", readings.nbest, [RIGHT["right-moses.txt"], RIGHT["right-kaldi.txt"]], SUFFIXES,
         ["eval", "run=kn", "nbest=FILE", "threads=1"]),
    Kind("costs.txt", readings.nbest, ["utt-a-1 3.5\nutt-a-2 1\nutt-b-1 2\n"], SUFFIXES,
         ["eval", "run=kn", "nbest=right-kaldi.txt", "nbest_costs=FILE"]),
    Kind("refs.txt", readings.references, ["the cat\na\n", RIGHT["right-references.txt"]], SUFFIXES,
         ["eval", "run=kn", "nbest=right-moses.txt", "nbest_reference=FILE"]),
    Kind("k.txt", readings.scores, [KENLM], SUFFIXES, ["compare", "runs=[FILE,right-kenlm.txt]", "resamples=10"]),
    Kind("d.ppl", readings.scores, [SRILM], SUFFIXES, ["ensemble", "runs=[FILE,right-srilm.txt]", "threads=1"]),
    Kind("k.tsv", readings.scores, [TSV], SUFFIXES, ["compare", "runs=[FILE,right-scores.tsv]", "resamples=10"]),
    Kind("tree.txt", readings.tree, [TREE], [],
         ["train", *commands.NEURAL, "model=hsoftmax", "tree=file", "tree.path=FILE"]),
    Kind("own.txt", readings.classes, [CLASSES, SRILM_CLASSES], [], [*TRAIN, "model=class_ngram", "model.file=FILE"]),
    Kind("run-classes.txt", readings.classes, ["@classes"], [], []),
    Kind("vocabulary.txt", readings.vocabulary_file, [VOCABULARY], [], []),
    Kind("a.arpa", readings.arpa, ["@arpa", "@arpa.kenlm"], SUFFIXES,
         ["score", "arpa=FILE", "text=valid.txt", "to=to.tsv"]),
    Kind("c.tsv", readings.counts, [COUNTS, "@counts"], SUFFIXES,
         ["train", "data=text", "data.valid=valid.txt", "model=ngram",
          "counts=table", "counts.path=[FILE]", "threads=1"]),
    Kind("p.parquet", readings.parquet, ["@parquet"], [], [*PREPROCESS, "data.train=FILE", "data.column=words"]),
    Kind("tokenizer.json", readings.pieces, ["@tokenizer"], [],
         [*PREPROCESS, "data.train=train.txt", "data.vocabulary.unit=bpe", "data.vocabulary.file=FILE"]),
    Kind("s.model", readings.pieces, ["@bpe.model", "@unigram.model"], [],
         [*PREPROCESS, "data.train=train.txt", "data.vocabulary.unit=unigram", "data.vocabulary.file=FILE"]),
    Kind("bomb.txt", readings.bomb, [f"@bomb{suffix}" for suffix in SUFFIXES], [], [*PREPROCESS, "data.train=FILE"]),
]
# fmt: on
