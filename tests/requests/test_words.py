"""Command lines as people type them: paths of any characters, lists and sweeps, keys of other tools, odd lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lmtool.config.composition import hydra_words
from lmtool.config.grammar import override_key, sweep_values
from lmtool.config.options import GROUP_MODULES, yaml_files
from lmtool.config.request import Request
from lmtool.config.yaml_files import suggest_option
from lmtool.errors import UserError
from lmtool.requests.arguments import split_line
from lmtool.requests.compose import compose_jobs, compose_options, compose_request
from lmtool.requests.synonyms import MEANINGS
from lmtool.requests.words import parse_request
from tests.conftest import Run, answer
from tests.schemas import SETTINGS


def asked(line: str | list[str]) -> Request:
    return parse_request(split_line(shlex.split(line) if isinstance(line, str) else line))


def values(line: str | list[str]) -> list[object]:
    """Return the values that OmegaConf holds in the end, for a line without a sweep."""
    words = split_line(shlex.split(line) if isinstance(line, str) else line).overrides
    request = asked(line)
    given = request.choices | request.values
    plain = OmegaConf.to_container(OmegaConf.create([given[override_key(word)] for word in words]), resolve=True)
    assert isinstance(plain, list)
    return plain


NAMES = [
    *("ünï.txt", "größe", "x=y.txt", "(a).txt", "[a].txt", "[a]", "a,b.txt", "C:x.txt", "my file.txt", "it's.txt"),
    *('a"b.txt', "a#b", "{a}.txt", "{a}", "a!b&c;d", "1e3", "1_000", "true", "007", "a~b", "file(1).txt", "file(1)"),
    *("a$b", "a${b", "a\\b", "a'b\\", "日本 語.txt", "-.txt", "@x", "a:b", "100%", "<a>", "^a", "`a`"),
    *("C:\\texts\\a b.txt", "..\\runs\\new", "C:\\runs\\", "C:\\a,b\\(c).txt", "//host/a.txt"),  # Windows
]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_means_itself(name: str) -> None:
    assert values(["eval", f"text={name}"]) == [name]
    assert values(["eval", f"hydra.run.dir={name}"]) == [name]
    if "," not in name and not name.startswith(("[", "{")) and not name.endswith("\\"):
        assert values(["compare", f"runs=[{name},b]"]) == [[name, "b"]]


def test_what_hydra_reads_stays_as_it_is() -> None:
    words = {
        "text='a, b'": "a, b",
        "text=null": None,
        "text=${run}": "${run}",
        "text=${oc.env:X,a}/b": "${oc.env:X,a}/b",
        "text=": "",
        "hydra.verbose=true": True,
        "hydra.searchpath=[pkg://x]": ["pkg://x"],
    }
    for word, value in words.items():
        assert asked(["eval", word]).values[override_key(word)] == value
    line = "train -m seed=1,2 model=ngram,nplm model.order=range(1,4) data.name=a,b optim.lr=1e-3"
    request = asked(line)
    assert request.sweep and [*request.choices.items(), *request.values.items()] == [
        *[("model", "ngram,nplm"), ("seed", "1,2"), ("model.order", "range(1,4)"), ("data.name", "a,b")],
        ("optim.lr", "1e-3"),
    ]
    assert asked(["train", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]).values == {"hydra.launcher.n_jobs": 2}
    request = asked(["train", "data=ptb", "+data.downloads.train={url: 'http://x'}"])
    assert request.values == {"data.downloads.train": {"url": "http://x"}}


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert values("eval text=~/x.txt") == ["/home/ann/x.txt"]
    assert values("compare runs=[~/a,b~/c]") == [["/home/ann/a", "b~/c"]]
    assert values("train hydra.run.dir=~ data=text data.train=~/ü.txt") == ["/home/ann", "text", "/home/ann/ü.txt"]
    assert values("train data=text data.train=[~/a.txt,b.txt]") == ["text", ["/home/ann/a.txt", "b.txt"]]
    assert values(["eval", "text='~/x.txt'"]) == ["~/x.txt"], "in quotes of Hydra's it is a name"
    for name in ("a,~/x.txt", "[a,~/b].txt"):
        assert values(["eval", f"text={name}"]) == [name], "one name, which begins otherwise"
    assert values(["compare", "runs=[a,'b,~/c','~/d',~/e]"]) == [["a", "b,~/c", "~/d", "/home/ann/e"]]
    assert asked(["eval", "-m", "text=a,~/b"]).values == {"text": "a,/home/ann/b"}
    assert values(["predict", "text=~/x"]) == ["~/x"], "prose"
    assert split_line(["train", "--config-dir=~/own"]).flags == {"--config-dir": "/home/ann/own"}
    assert split_line(["train", "--config-dir", "~/own"]).flags == {"--config-dir": "/home/ann/own"}


def test_interpolations_stay_within_words_that_need_quotes() -> None:
    assert asked(["eval", "text=ü/${split}"]).values == {"text": "ü/${split}"}


def test_one_value_is_a_list_of_one() -> None:
    assert values("compare runs=runs/de") == [["runs/de"]]
    assert values("compare runs=größe,b") == [["größe", "b"]]
    assert values("tree words=the") == [["the"]]
    assert values("tree words=[null,true,1e3]") == [["null", "true", "1e3"]]
    assert values("train model=ngram prune_counts=0,0,1") == ["ngram", [0, 0, 1]]
    assert values("train prune_counts=null") == [None] and values("tree words=[]") == [[]]
    assert values(["compare", "runs=['a,b','c']"]) == [["a,b", "c"]]
    assert values(["compare", "runs=[it's,b]"]) == [["it's", "b"]]
    assert asked(["compare", "-m", "runs=[a,ü],[c,d]"]).values == {"runs": "[a,'ü'],[c,d]"}


def test_a_sweep_over_odd_names() -> None:
    request = asked(["train", "-m", "hydra.sweep.subdir=${model.order},${seed}"])
    assert hydra_words(request) == ["hydra.sweep.subdir='${model.order},${seed}'"]
    assert asked(["eval", "-m", "text=ünï.txt,b.txt"]).values == {"text": "'ünï.txt',b.txt"}


def test_a_file_with_a_comma_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert values("train data=text data.train=a,b.txt") == ["text", ["a", "b.txt"]]
    Path("a,b.txt").touch()
    assert values("train data=text data.train=a,b.txt") == ["text", "a,b.txt"]


def test_a_list_of_one_folder_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run,1").mkdir()
    Path("run").mkdir()
    assert values("compare runs=run") == [["run"]] and values("compare runs=run,1") == [["run,1"]]
    assert values("tree words=run") == [["run"]]


def test_odd_names_come_through(runs: Path, lmtool: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "the cat sat\n"
    for name in ("ünï.txt", "x=y,z (1).txt", "my file.txt"):
        Path(name).write_text(text)
        lmtool("eval", f"run={runs}/mle", f"text={name}")
        assert (result := answer())["tokens"] == 4 and result["split"] == name
    lmtool("eval", f"run={runs}/mle", "text=~/my file.txt", "hydra.run.dir=größe, (2) a=b")
    assert Path("größe, (2) a=b/result.json").is_file()
    own = [
        "data=text",
        "data.name=größe",
        "data.train=ünï.txt",
        "data.valid=[my file.txt]",
        "model=ngram",
        "model.order=1",
    ]
    lmtool("train", *own, "hydra.run.dir=run ü")
    lmtool("eval", "run=run ü")
    assert answer()["tokens"] == 4


# Each line, and the words that its one line of error must hold.
HINTS = [
    ("seed=1,2", "seed=1,2: a sweep over several values needs -m"),
    ("model=ngram model.order=1,2,3", "model.order=1,2,3: a sweep over several values needs -m"),
    ("seed=range(1,3)", "seed=range(1,3): a sweep over several values needs -m"),
    ("-m model=ngram smoother=[laplace,mle]", "choose one option; to try several, -m smoother=laplace,mle"),
    ("-m model=ngram,nplm training.epoch=1", "no key 'training.epoch'; did you mean training.epochs?"),
    ("model=ngram,nplm", "model=ngram,nplm: a sweep over several values needs -m"),
    ("model=größe", "no model=größe; there are cbow,"),
    ("foo=1,2", "no key 'foo'"),
    ("größe=3", "no key 'größe'"),
    ("prune_counts=[1", "cannot read 'prune_counts=[1': write key=value, a list as key=a,b"),
    ("=3", "cannot read '=3'"),
    ("model.kind=ngram", "model.kind=ngram: choose an option by model=ngram"),
    ("'model = ngram'", "write model=ngram, without spaces around ="),
    ("model= ngram", "'ngram' is not a setting: write key=value"),
    ("model ngram", "'model' is not a setting: write key=value"),
    ("hydra.run=x", "hydra.run=x: write out=FOLDER"),
    ("hydra=x", "hydra=x: write out=FOLDER"),
    ("--foo", "no flag --foo; settings have no dashes: write foo=value"),
    ("--model ngram", "no flag --model; settings have no dashes: write model=value"),
    ("--batch-size=32", "write batch_size=32"),
    ("--lr -m", "write lr=value"),
    ("-o 3", "no flag -o; settings have no dashes: write o=value"),
    ("--mutlirun", "no flag --mutlirun; did you mean --multirun?"),
    ("--cfg", "--cfg needs a value after it"),
    (
        "--config-dir --resolve",
        "needs a value after it; one that starts with a dash is --config-dir=-VALUE",
    ),
    ("--cfg jub", "--cfg jub: must be one of job, hydra, all"),
]


@pytest.mark.parametrize(("words", "said"), HINTS, ids=[words for words, _ in HINTS])
def test_what_a_word_cannot_be(words: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        asked(["train", *shlex.split(words)])
    assert said in str(error.value)


def test_a_folder_is_probably_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/kn5").mkdir(parents=True)
    wanted = {
        "eval": "write run=runs/kn5",
        "compare": "write key=value, without spaces around =",
        "train": "write key=value, without spaces around =",
    }
    for verb, said in wanted.items():
        with pytest.raises(UserError) as error:
            asked([verb, "runs/kn5"])
        assert str(error.value) == f"'runs/kn5' is not a setting: {said}"


KEYS = [
    ("train", "lr=0.1", "no key 'lr'; did you mean optim.lr?"),
    ("train", "learning_rate=1", "did you mean optim.lr?"),
    ("train", "epochs=3", "did you mean training.epochs?"),
    ("train", "batch_size=3", "did you mean training.batch_size?"),
    ("train", "batch-size=3", "did you mean training.batch_size?"),
    ("train", "hidden_dim=3", "did you mean model.hidden_dim?"),
    ("train", "Hidden_Size=3", "did you mean model.hidden_dim?"),
    ("train", "dropout=0.3", "did you mean model.dropout?"),
    ("train model=ngram", "order=3", "did you mean model.order?"),
    ("train", "order=3", "did you mean model.order? (a key of model=ngram, model="),
    ("train model=ngram", "n=3", "did you mean model.order?"),
    ("train model=ngram", "lr=3", "did you mean optim.lr? (a key of model="),
    ("train", "corpus=ptb", "did you mean data?"),
    ("train", "dataset=mine", "did you mean data?"),
    ("train", "optimizer=adam", "did you mean optim?"),
    ("train", "scheduler=cosine", "did you mean schedule?"),
    ("train model=ngram", "smoothing=witten_bell", "did you mean smoother?"),
    ("train", "smoothing=witten_bell", "did you mean smoother? (a key of model=ngram, "),
    ("train", "tokenizer=char", "did you mean data.vocabulary.unit?"),
    ("train", "vocab_size=9", "did you mean data.vocabulary.size?"),
    ("train", "run.dir=x", "no key 'run.dir'; did you mean out?"),
    ("train", "output_dir=x", "did you mean out?"),
    ("train", "dir=x", "did you mean out?"),
    ("train", "hydra.rundir=x", "did you mean run or "),
    ("train", "training.lr=2", "no key 'training.lr'; did you mean optim.lr?"),
    ("train", "model.lr=2", "did you mean optim.lr?"),
    ("train", "optim.lrr=3", "no key 'optim.lrr'; did you mean optim.lr?"),
    ("train model=ngram", "smoother.D=.75", "did you mean smoother.discounts?"),
    ("train", "+experiments=names", "no key 'experiments'; did you mean +experiment?"),
    ("train", "modle=ngram", "did you mean model?"),
    ("train", "seeed=3", "did you mean seed"),
    ("train", "split=test", "no key 'split'; it is a key of lmtool eval, lmtool ensemble, lmtool compare"),
    ("train", "optim.nothing=1", "no key 'optim.nothing'; there are"),
    ("train", "nothing_like_it=1", "no key 'nothing_like_it'; there are +experiment, data, "),
    ("eval", "file=x", "did you mean text?"),
    ("eval", "model_path=x", "did you mean run?"),
    ("ensemble", "run=a", "did you mean runs?"),
    ("report", "runs=[a]", "did you mean paths?"),
    ("train", "hydra.job.env_set.X=1", "to add it write +hydra.job.env_set.X=1"),
    ("generate", "max_tokens=3", "did you mean length?"),
    # A key of another option, or of a group that is not used.
    ("train", "data.split.train=0.8", "no key 'data.split.train'; it is a key of data=text"),
    ("train", "data.train=x.txt", "no key 'data.train'; it is a key of data=text"),
    ("train model=nplm", "model.order=3", "no key 'model.order'; it is a key of model=ngram, model="),
    (
        "train model=ngram",
        "smoother.alpha=1",
        "it is a key of smoother=laplace, smoother=witten_bell, smoother=stupid_backoff",
    ),
    (
        "train model=ngram",
        "optim.lr=3",
        "no key 'optim.lr'; it is a key of model=",
    ),
    ("train", "tree=huffman", "no key 'tree'; it is a key of output=hierarchical, lmtool tree"),
    (
        "eval",
        "model=nplm",
        "no key 'model'; it is a key of lmtool train",
    ),
    ("train output=hierarchical", "model.tree=huffman", "no key 'model.tree'; did you mean tree?"),
    ("train", "training/optim=sgd", "no key 'training/optim'; did you mean training?"),
    ("compare", "tree=random", "no key 'tree'; it is a key of lmtool tree"),
]


@pytest.mark.parametrize(("line", "word", "said"), KEYS, ids=[f"{line} {word}" for line, word, _ in KEYS])
def test_the_key_that_is_meant(line: str, word: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        compose_request(asked([*line.split(), word]))
    assert said in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        "model=nplm,ngram output=softmax,hierarchical tree=huffman,union smoother=glob(w*)",
        "+experiment=subwords,ptb_hsoftmax tree=glob(b*) counts=glob(*)",
    ],
)
def test_few_jobs_of_a_sweep_have_every_option(line: str) -> None:
    words = line.split()
    tried = [
        [f"{key}={value}" for value in sweep_values(key.lstrip("+"), text) or [text]] for key, text in pairs(words)
    ]
    chosen = [Request("train", dict(pairs(words))) for words in product(*tried)]
    every = [compose_options(request, may_leave_out=True).choices for request in chosen]
    few = [job.choices for job in compose_jobs(asked(["train", "-m", *words]))]
    assert few[0] == every[0] and len(few) <= len(every)
    of_few, of_every = ({pair for choices in each for pair in choices.items()} for each in (few, every))
    assert of_few == of_every


def pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (word.partition("=") for word in words)]


def test_the_number_of_jobs_that_are_checked_is_a_sum() -> None:
    swept_groups = {"schedule": "steps,cosine,plateau", "output": "softmax,hierarchical", "tree": "glob(b*)"}
    words = [f"{group}={names}" for group, names in swept_groups.items()]
    jobs = compose_jobs(asked(["train", "-m", "model=nplm", *words]))
    assert len(jobs) == 1 + sum(len(sweep_values(group, names) or []) - 1 for group, names in swept_groups.items())
    keys = ("schedule.gamma", "tree.max_words", "tree.x", "x")
    having = [key for key in keys if any(job.type_of(key) is not None for job in jobs)]
    assert having == ["schedule.gamma", "tree.max_words"]


def test_meanings_are_keys() -> None:
    known = {"out", *GROUP_MODULES}
    for settings in SETTINGS[""].values():
        known |= settings.__dataclass_fields__.keys()
    for group, options in SETTINGS.items():
        known |= {f"{group}.{key}" for settings in options.values() for key in settings.__dataclass_fields__}
    known |= {f"data.vocabulary.{key}" for key in ("file", "size", "lowercase", "unit")}
    assert {key for keys in MEANINGS.values() for key in keys} <= known


@pytest.mark.parametrize(
    ("group", "name", "option"),
    [
        *(("smoother", name, "kneser_ney") for name in ("kn", "Kneser-Ney", "kneserney")),
        *(("smoother", name, "modified_kneser_ney") for name in ("mkn", "modified-kneser-ney", "MKN")),
        *(("smoother", name, "good_turing") for name in ("katz", "gt", "Good-Turing")),
        *(("smoother", "wb", "witten_bell"), ("smoother", "jm", "jelinek_mercer"), ("smoother", "add_one", "laplace")),
        *(("data", "PTB", "ptb"), ("data", "wikitext-2", "wikitext2"), ("model", "n-gram", "ngram")),
    ],
)
def test_other_names_of_an_option(group: str, name: str, option: str) -> None:
    assert suggest_option(group, name) == f"; did you mean {option}?"


def test_other_names_are_each_for_one_option() -> None:
    for group in GROUP_MODULES:
        for option in yaml_files(group):
            assert suggest_option(group, option) == f"; did you mean {option}?"


def test_other_names_of_an_option_from_outside(tmp_path: Path) -> None:
    (tmp_path / "smoother").mkdir()
    (tmp_path / "smoother" / "mine.yaml").write_text(
        "# lmtool train\n# Mine.\n# Also known as: my_own, own-1\n\nkind: mine\n"
    )
    assert suggest_option("smoother", "own1", [tmp_path]) == "; did you mean mine?"


# Lines with a mistake: each ends with 2 and one line, whatever of lmtool or Hydra it meets first.
ODD = [
    ("train hydra.run.dir=file", "hydra.run.dir=file: file is a file"),
    ("train hydra.run.dir=file/below/it", "hydra.run.dir=file/below/it: file is a file"),
    ("train hydra.run.dir=", "hydra.run.dir=: name a folder"),
    ("train -m seed=1,2 hydra.sweep.dir=file", "hydra.sweep.dir=file: file is a file"),
    ("train -m seed=1,2 hydra.sweep.dir=", "hydra.sweep.dir=: name a folder"),
    ("train hydra.run.dir=" + "x" * 300, "File name too long"),
    ("eval hydra.run.dir=file/${split}", "cannot use file/valid: Not a directory"),
    ("train --config-dir nowhere", "--config-dir nowhere: no such folder"),
    ("train ~output", "~output: a setting cannot be left out; give it another value, e.g. output="),
    ("train ~model", "~model: a setting cannot be left out"),
    ("train ~training.epochs", "~training.epochs: a setting cannot be left out"),
    ("train ~nothing", "~nothing: a setting cannot be left out"),
    ("train ++model=ngram", "model"),
    ("preprocess +size=3 data=toy", "no key 'size'; did you mean data.vocabulary.size?"),
    ("preprocess data.split.train=0.8 hydra.run.dir=runs/q", "no key 'data.split.train'; it is a key of data=text"),
    ("preprocess data.train=x.txt", "a key of data=text"),
    ("eval model=nplm", "a key of lmtool train"),
    ("preprocess data=corpora/a.txt", "no data=corpora/a.txt; did you mean text?"),
    ("preprocess data=file.txt", "no data=file.txt; did you mean data=text data.train=file.txt?"),
    ("preprocess data=PTB", "no data=PTB; did you mean ptb?"),
    ("train model=ngram smoother=mkn", "no smoother=mkn; did you mean modified_kneser_ney?"),
    ("compare runs=runs/de", "name two or more that differ, e.g. runs=A,B"),
    ("preprocess data@foo=toy", "data@foo"),
    ("eval -m hydra.sweeper.params={seed:1}", "no key 'seed'"),
    ("train -m --cfg job model=ngram,nplm", "--cfg and --info show the settings of one job"),
    (
        "train -m model.order=range(1,3) model=ngram --info",
        "--cfg and --info show the settings of one job",
    ),
    ("eval hydra/launcher=jobli -m split=test,valid", "no hydra/launcher=jobli; did you mean joblib?"),
    ("eval hydra.launcher.n_jobs=2", "choose one of joblib"),
    ("predict -5", "for text that begins with a dash, text=-5"),
    ("tree levels=größe", "levels=größe: must be a whole number"),
    ("tree data=toy -m schedule=shuffle(1,2)", "schedule"),
    ("generate the temperature=1" + "0" * 400, "numbers must be at most 1.8e+308"),
    ("train data=toy model.forgetting_factors=[0.5,1" + "0" * 400 + "]", "numbers must be at most 1.8e+308"),
]


@pytest.mark.parametrize(("line", "said"), ODD, ids=[line[:60] for line, _ in ODD])
def test_an_odd_line_ends_with_one_line(line: str, said: str, lmtool: Run) -> None:
    Path("file").touch()
    Path("file.txt").touch()
    printed = lmtool(*line.split(), code=2)
    assert said in printed and printed.startswith("lmtool: ") and printed.count("\n") == 1, printed
    assert Path("file").read_bytes() == b""


def test_an_experiment_without_its_package(lmtool: Run) -> None:
    Path("own/experiment").mkdir(parents=True)
    Path("own/experiment/e.yaml").write_text("seed: 3\n")
    said = lmtool("train", "--config-dir", "own", "+experiment=e", "data=toy", "model=ngram", code=2)
    assert said == "lmtool: own/experiment/e.yaml: an experiment must begin with the line # @package _global_; add it\n"
    assert said == lmtool("train", "-m", "--config-dir", "own", "+experiment=names,e", "seed=1,2", code=2)
