"""Mistakes that only the verb itself can find: one line that says what is wrong, exit code 2, and no file.

Numbers out of their range are in tests/cli/test_ranges.py, settings that contradict each other in
tests/requests/test_contradictions.py.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import lmtool as package
from lmtool.commands._formats import write_arpa
from tests.commands.test_arpa_alone import ARPA, TEXT, WITHOUT_UNK
from tests.conftest import Run


@pytest.fixture(scope="module")
def made(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs kn3, nplm, hs, mix and char, with ARPA files and with small texts."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("kn3", "nplm", "hs", "mix", "char"):
        (folder / name).symlink_to(runs / name)
    model = package.load(runs / "kn3").model
    write_arpa(model.table, model.vocabulary, folder / "kn3.arpa")
    scores = replace(model.table, log_prob=model.table.log_prob - 1, normalized=False)
    write_arpa(scores, model.vocabulary, folder / "stupid.arpa")
    (folder / "de.arpa").write_text(ARPA)
    (folder / "no.arpa.gz").write_bytes(gzip.compress(WITHOUT_UNK.encode()))
    pairs = [json.dumps({"sentence_good": "a b", "sentence_bad": "b a"})]
    documents = [json.dumps({"n": n, "text": text}) for n, text in enumerate(("a b", "", "b zzz a"))]
    for name, lines in {
        "pairs.jsonl": pairs,
        "docs.jsonl": documents,
        "de.txt": [TEXT],
        "w1": "a",
        "w2": "a",
        "lists": ["0 ||| a"],
    }.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


NGRAM, TRAIN, TREE = "train model=ngram data=toy", "train model=nplm data=toy", "train model=hsoftmax data=toy tree"
SCORE = "score arpa=de.arpa text=docs.jsonl column=text"
MIX, WEIGHTS = "ensemble runs=[kn3,nplm]", "must be numbers of 0 or more, and not all 0"
ARPA_FILE = "is an ARPA file: use arpa="
MISTAKES: list[tuple[str, *tuple[str, ...]]] = [
    # n-grams
    (f"{NGRAM} counts.memory=much", "counts.memory=much", "512MiB"),
    (f"{NGRAM} counts.memory=1KiB", "counts.memory=1KiB", "64KiB or more"),
    (f"{NGRAM} prune_counts=[1,1]", "prune_counts=[1, 1]", "0 for order 1"),
    (f"{NGRAM} prune_counts=[0,2,1]", "prune_counts=[0, 2, 1]", "none below"),
    (f"{NGRAM} model.order=2 prune_counts=[0,0,1]", "3 cut-offs", "model.order=2"),
    (f"{NGRAM} prune_to=many", "prune_to=many", "500k or 1M, or a share"),
    (f"{NGRAM} prune_to=150%", "prune_to=150%", "below 100%"),
    (f"{NGRAM} prune_to=2.5", "prune_to=2.5", "500k or 1M"),
    (f"{NGRAM} prune_to=3", "prune_to=3", "the 1-grams stay"),
    (f"{NGRAM} prune_to=50% prune_entropy=1e-8", "prune_entropy=1e-08", "cannot be used with prune_to=50%"),
    (f"{NGRAM} prune_to=50% prune_counts=[0,1]", "prune_counts=[0, 1]", "prune_method=entropy"),
    (f"{NGRAM} prune_to=50% prune_method=best", "prune_method=best", "gain or entropy"),
    (f"{NGRAM} prune_to=50% smoother.interpolate=false", "prune_method=gain", "prune_method=entropy"),
    (f"{TRAIN} prune_to=1k", "prune_to=1k", "model=nplm is not pruned"),
    (f"{TRAIN} prune_counts=[0,1]", "prune_counts=[0, 1]", "model=nplm is not pruned"),
    (f"{TRAIN} counts.memory=1GiB", "no key 'counts.memory'; it is a key of model=ngram"),
    (f"{NGRAM} limit_vocabulary=w?", "limit_vocabulary=w? names 2 files: name one"),
    (f"{NGRAM} smoother.discounts=best", "smoother.discounts=best", "tuned"),
    (f"{NGRAM} smoother.discounts=[0.5]", "smoother.discounts", "[D1,D2,D3+]"),
    (f"{NGRAM} smoother.discounts=[[0.5,1,4]]", "smoother.discounts=[0.5, 1, 4]", "0 <= D_r <= r"),
    (f"{NGRAM} smoother=kneser_ney smoother.discounts=[0.5]", "[0.5]: must have one entry per order, 5 of model.order"),
    (f"{NGRAM} smoother=kneser_ney smoother.discounts=2", "smoother.discounts=2", "from 0 to 1"),
    (f"{NGRAM} smoother.discounts=tuned smoother.interpolate=false", "smoother.interpolate=true"),
    (f"{NGRAM} smoother.discounts=tuned smoother.tune_on=dev", "smoother.tune_on=dev", "train, valid, test"),
    (f"{NGRAM} smoother=laplace smoother.alpha=some", "smoother.alpha=some", "tuned"),
    (f"{NGRAM} smoother=jelinek_mercer smoother.lambdas=[2]", "smoother.lambdas=[2]", "from 0 to 1"),
    (f"{NGRAM} smoother=witten_bell smoother.discounts=null", "smoother.discounts"),
    # networks and trees
    ("train model=nplm tree=huffman", "no key 'tree'; it is a key of output=hierarchical"),
    (f"{TREE}=hufman", "tree=hufman", "huffman"),
    (f"{TRAIN} output=sampled output.num_samples=24", "output.num_samples=24", "from 1 to 23"),
    (f"{TRAIN} model.hidden_dim=8 output=classes output.classes=24", "output.classes=24", "at most 23"),
    (f"{TREE}=classes tree.classes=24", "tree.classes=24", "at most 23"),
    (f"{TREE}=clusters tree.representation=contexts", "earlier run", "tree.run=runs/first"),
    (f"{TREE}=union tree.trees=[brown,bron]", "tree.trees[1]=bron", "did you mean brown?"),
    (f"{TREE}=clusters tree.run=nowhere", "no run folder nowhere"),
    (f"{TREE}=clusters tree.run=kn3", "not a neural model"),
    (f"{TREE}=clusters tree.run=x tree.epsilon=0.2 tree.split=balanced", "tree.split=adaptive"),
    (f"{TREE}=file", "tree.path"),
    (f"{TREE}=file tree.path=nowhere.txt", "nowhere.txt", "tree"),
    (f"{TREE}=wordnet tree.folder=nowhere", "nowhere", "wordnet"),
    ("train model=nplm output.precision=fp8", "output.precision", "fp32, bf16"),
    ("tree data=toy words=[teh]", "words=teh", "not in the vocabulary", "the"),
    ("tree run=hs tree=random", "run=hs: the run has data and a tree already"),
    ("tree run=nplm", "run=nplm has no tree"),
    ("eval run=nplm unnormalized=true", "has no scores that sum to one without a sum over all words"),
    ("eval run=kn3 unnormalized=true", "has no scores that sum to one without a sum over all words"),
    # mixtures
    (f"{MIX} weights=[-0.5,1.5]", WEIGHTS),
    (f"{MIX} weights=-1:2", WEIGHTS),
    (f"{MIX} weights=[nan,1]", WEIGHTS),
    (f"{MIX} weights=[inf,1]", WEIGHTS),
    (f"{MIX} weights=[0,0]", WEIGHTS),
    (f"{MIX} weights=[0,0] method=log_linear", WEIGHTS),
    (f"{MIX} weights=[-1,2] method=log_linear", WEIGHTS),
    (f"{MIX} weights=2:1:1", "must be one for each member, 2 runs"),
    (f"{MIX} weights=two:1", "must be one for each member, 2 runs"),
    (f"{MIX} weights=[0.5,0.5] cache=unigram", "must be one for each member, 2 runs and a cache"),
    (f"{MIX} weights=[0.5,0.5] method=classes", "cannot be used with method=classes"),
    (f"{MIX} method=log_linear cache=unigram", "needs method=linear"),
    (f"{MIX} cache_theta=1", "needs cache=neural"),
    ("ensemble runs=[kn3]", "name two runs or more"),
    ("ensemble runs=[nplm,nplm] method=classes", "needs an n-gram run"),
    ("ensemble runs=[kn3,kn3] cache=neural", "requires a neural run"),
    ("ensemble runs=[kn3,nowhere]", "no run folder nowhere"),
    (f"{MIX} method=quadratic", "method"),
    # distillation
    ("distill run=kn3 ngrams_from=nplm", "nplm is not an n-gram model: name a run that has"),
    ("distill run=nplm ngrams_from=char", "have different words"),
    ("distill run=nplm ngrams_from=mix", "mix is not an n-gram model"),
    ("distill run=nplm ngrams_from=nowhere", "no run folder"),
    ("distill run=nplm ngrams_from=kn3 tokens=50 prune_to=2", "prune_to=2: must be"),
    ("distill ngrams_from=kn3", "run has no value"),
    # ARPA files
    ("eval run=de.arpa text=de.txt", f"de.arpa {ARPA_FILE}de.arpa, in lmtool eval, score, predict or convert"),
    ("predict a run=no.arpa.gz", f"no.arpa.gz {ARPA_FILE}no.arpa.gz"),
    ("eval arpa=de.arpa", "arpa=de.arpa: needs text=FILE"),
    ("eval arpa=de.arpa run=kn3 text=de.txt", "run=kn3: cannot be used with arpa=de.arpa; remove one of the two"),
    ("generate arpa=de.arpa run=kn3", "run=kn3: cannot be used with arpa=de.arpa; remove one of the two"),
    ("eval arpa=de.txt text=de.txt", "de.txt is not an ARPA file"),
    ("eval arpa=nix.arpa text=de.txt", "no file nix.arpa for arpa"),
    ("eval arpa=*.* text=de.txt", "arpa=*.* names 7 files: name one"),
    # n-best lists
    ("rescore run=kn3 nbest=lists weight=-1", "weight=-1.0: must be"),
    ("rescore run=kn3 nbest=lists word_penalty=tuned", "must be null, a number, or with reference=FILE tuned"),
    ("rescore run=kn3 nbest=lists word_penalty=nan", "must be null, a number, or with reference=FILE tuned"),
    ("eval run=kn3 nbest=lists", "no key 'nbest'; it is a key of lmtool rescore"),
    ("eval run=kn3 nbest_reference=right", "did you mean reference? (a key of lmtool rescore)"),
    # conversion and export
    ("convert", "lmtool convert reads run=PATH, arpa=FILE or runs=A,B", "to=FILE.arpa"),
    ("convert arpa=nowhere.arpa data=toy", "nowhere.arpa"),
    ("convert run=nowhere to=x.arpa", "no run folder nowhere"),
    ("convert arpa=kn3.arpa prune_entropy=1e-3 prune_to=1k to=x.arpa", "cannot be used with prune_to=1k"),
    ("convert arpa=kn3.arpa prune_to=50% prune_method=gain to=x.arpa", "must be entropy; gain needs the counts"),
    ("convert arpa=kn3.arpa prune_to=2 to=x.arpa", "the 1-grams stay"),
    ("convert arpa=kn3.arpa prune_counts=[0,0,1] to=x.arpa", "no key 'prune_counts'; it is a key of lmtool train"),
    ("convert arpa=kn3.arpa prune=1e-7 to=x.arpa", "no key 'prune'; did you mean prune_entropy?"),
    ("convert arpa=kn3.arpa to=x.tsv", "counts are those of run=PATH"),
    ("convert run=kn3 prune_to=50% to=x.tsv", "counts are those of run=PATH"),
    ("convert arpa=kn3.arpa to=x.vec", "use lmtool export for word2vec text"),
    ("convert run=nplm prune_to=50% hydra.run.dir=x", "prune_to=50%: model=nplm is not pruned"),
    ("convert arpa=stupid.arpa prune_entropy=1e-3 to=x.arpa", "prune_entropy=0.001: the model's scores do not sum to"),
    ("convert arpa=stupid.arpa prune_to=50% to=x.arpa", "prune_to=50%: the model's scores do not sum to one"),
    ("convert run=nplm prune_to=50% to=x.arpa", "is not an n-gram model"),
    ("convert run=kn3.arpa prune_to=50% to=x.arpa", "use arpa=kn3.arpa"),
    ("export run=kn3 to=x.foo", "to=x.foo", ".arpa.gz"),
    ("export run=kn3 to=x.gz", "to=x.gz", "suffix"),
    ("export run=kn3 to=x.txt", "kn3 is not a neural model"),
    ("export run=nplm to=x.arpa", "nplm is not an n-gram model"),
    ("export run=mix to=x.safetensors", "mix is not a neural model"),
    ("export run=hs to=x.txt what=output", "no vector for each word"),
    ("export run=hs to=x.safetensors what=output", "what=output", "safetensors"),
    ("export run=nplm to=/proc/x.txt", "cannot write /proc/x.txt"),
    # texts and pairs
    ("score arpa=de.arpa to=out.tsv", "text"),
    ("score arpa=de.arpa text=nowhere.txt to=out.tsv", "no file nowhere.txt for text"),
    ("score arpa=de.arpa text=docs.jsonl to=out.tsv", "docs.jsonl holds documents", "by column"),
    ("score arpa=de.arpa text=docs.jsonl to=out.tsv columns=[n]", "columns=['n']", "column=NAME"),
    ("score arpa=de.arpa text=- column=text filter=out.jsonl share=0.3", "filter=out.jsonl", "text=-", "read once"),
    ("score arpa=de.arpa text=de.txt to=out.tsv tokenizer=w?", "tokenizer=w? names 2 files: name one"),
    (SCORE, "give to=FILE.tsv", "filter=FILE"),
    (f"{SCORE} column=words to=out.tsv", "docs.jsonl, line 1", "column names one of: n, text"),
    (f"{SCORE} to=out.txt", "to=out.txt", ".tsv", ".parquet"),
    (f"{SCORE} filter=out.jsonl", "filter=out.jsonl", "max_perplexity=, min_perplexity=, share= or max_oov="),
    (f"{SCORE} to=out.tsv max_perplexity=3", "max_perplexity=3", "filter"),
    (f"{SCORE} filter=docs.jsonl max_perplexity=3", "filter=docs.jsonl", "text=docs.jsonl"),
    (f"{SCORE} to=out.tsv filter=out.tsv max_perplexity=3", "filter=out.tsv", "to=out.tsv"),
    (f"{SCORE} filter=out.parquet max_perplexity=3", "filter=out.parquet", "Parquet"),
    (f"{SCORE} to=s3://x/out.tsv", "to=s3://x/out.tsv", "a file on this machine"),
    (f"{SCORE} to=out.tsv buckets=[a]", "buckets", "two names or more"),
    (f"{SCORE} to=out.tsv buckets=[a,b] bucket_split=valid", "bucket_split=valid", "arpa"),
    (f"{SCORE} to=out.tsv bucket_limits=[3]", "bucket_limits=[3.0]", "buckets"),
    (f"{SCORE} columns=[n] filter=out.jsonl max_perplexity=3", "columns=['n']", "to=FILE"),
    (f"{SCORE} filter=out.txt max_perplexity=3 filter_scores=true", "out.txt", "ends in .jsonl"),
    ("pairs arpa=de.arpa text=none.jsonl", "no file none.jsonl for text"),
    ("pairs runs=[de.arpa,nope] text=pairs.jsonl", "no run folder nope"),
    ("pairs runs=[de.arpa,de.arpa] text=pairs.jsonl", "name one or more that differ"),
    ("pairs arpa=de.arpa text=pairs.jsonl to=out.xlsx", "out.xlsx: the suffix decides what is written: .tsv, .csv or"),
    ("pairs arpa=de.arpa text=pairs.jsonl items=out.csv", "items=out.csv: name a file that ends in .jsonl"),
    ("pairs arpa=de.arpa text=pairs.jsonl criterion=max", "criterion=max: must be sum or mean"),
    ("pairs arpa=de.arpa text=pairs.jsonl runs=[a]", "cannot be used with arpa=de.arpa"),
    # words
    ("predict the run=kn3 oov=skip", "oov", "error, unk"),
    ("predict cta run=kn3", "cta is not in the vocabulary", "cat"),
    ("predict", "text has no value"),
    ("predict the cat run=kn3", "'the' and 'cat'", "quotes"),
    ("predict the run=kn3 paths=true", "paths=true: kn3 has no tree"),
    ("neighbors", "name at least one word", "questions=FILE"),
    ("neighbors words=[]", "words=[]", "lmtool neighbors value"),
    ("neighbors cat run=kn3", "kn3 is not a neural model"),
    ("neighbors cta run=nplm", "cta is not in the vocabulary", "cat"),
    ("neighbors cat run=hs of=output", "no vector for each word"),
]


@pytest.mark.parametrize("line", [line for line, *_ in MISTAKES])
def test_a_mistake_is_one_line_and_no_file(line: str, made: Path, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    shutil.copytree(made, ".", symlinks=True, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    said = lmtool(*line.split(), code=2)
    assert said.startswith("lmtool: ") and said.count("\n") == 1, said
    for word in next(words for each, *words in MISTAKES if each == line):
        assert word in said
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
    assert not list(Path().glob("x*/run.json")) and not list(Path().glob("outputs/**/run.json"))
