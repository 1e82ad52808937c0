"""lmtool.harness, a model of lm-evaluation-harness: by hand, and the same scores as `lmtool pairs` for every item."""

from __future__ import annotations

import json
import math
import runpy
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import lmtool as python
from tests.commands.test_arpa_alone import ARPA
from tests.commands.test_pairs import PAIRS, lines
from tests.conftest import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # of the harness and what it imports
needs_harness = pytest.mark.tool("lm_eval")

# The template of lm-eval's tasks of BLiMP, on a local file.
TASK = """task: local_pairs
dataset_path: json
dataset_kwargs: {data_files: {train: FOLDER/pairs.jsonl}}
output_type: multiple_choice
validation_split: train
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{[sentence_good, sentence_bad]}}"
num_fewshot: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def files(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HF_HOME", str(Path("hf").absolute()))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(Path("hf").absolute()))
    Path("de.arpa").write_text(ARPA)
    Path("pairs.jsonl").write_text(lines())
    Path("task.yaml").write_text(TASK.replace("FOLDER", str(Path.cwd())))
    return lmtool


def asked(model: object, kind: str, *arguments: tuple[object, ...]) -> list[object]:
    from lm_eval.api.instance import Instance

    requests = [Instance(kind, {}, given, number) for number, given in enumerate(arguments)]
    found: list[object] = getattr(model, kind)(requests)
    return found


@needs_harness
def test_scores_by_hand(files: Run) -> None:
    from lmtool.harness import LmtoolLM

    model = LmtoolLM(arpa="de.arpa")
    requests = [
        ("", " a b"),  # a sentence: -0.1 -0.4 -0.6
        ("a", " b"),  # -0.4, without </s>
        ("b zzz a\na", " b\n"),  # after the newline a new sentence; the last one ends it: -0.4 -0.6
        ("", "a b\na"),  # two sentences: -1.1, and -0.1 -0.9
        ("a", ""),  # nothing
    ]
    found = asked(model, "loglikelihood", *requests)
    assert [total / math.log(10) for total, _ in found] == pytest.approx([-1.1, -0.4, -1.0, -2.1, 0], abs=1e-5)  # type: ignore[misc]
    # After <s> the likeliest word is a, after a it is b; after b it is </s>; after a </s> has -0.9 and b -0.4.
    assert [greedy for _, greedy in found] == [True, True, True, False, False]  # type: ignore[misc]
    assert asked(LmtoolLM(arpa="de.arpa", eos=True), "loglikelihood", ("a", "b"))[0][0] == pytest.approx(
        -math.log(10), abs=1e-5
    )  # type: ignore[index]
    rolling = asked(model, "loglikelihood_rolling", ("a b\nb zzz a",), ("",))
    assert rolling == [pytest.approx(-5 * math.log(10), abs=1e-4), 0]
    settings = [{"until": ["\n"]}, {"until": "b"}, {"max_gen_toks": 1, "do_sample": True}]
    assert asked(model, "generate_until", *(("x\n", each) for each in settings))[:2] == ["a b", "a "]


@needs_harness
def test_text_is_cut_as_by_pairs(files: Run) -> None:
    from lmtool.harness import LmtoolLM

    model = LmtoolLM(arpa="de.arpa", words="punctuation", keep_punctuation=False, lowercase=True)
    (whole, _), (after, _) = asked(model, "loglikelihood", ("", " A b!"), ("A,", " B."))  # type: ignore[misc]
    assert (whole, after) == pytest.approx((-1.1 * math.log(10), -0.4 * math.log(10)), abs=1e-5)
    assert asked(model, "loglikelihood_rolling", ("A b.\nA B!",)) == pytest.approx([-2.2 * math.log(10)], abs=1e-5)
    for settings, said in (({"eos": "no"}, "eos=no: must be"), ({"words": "ptp"}, "words=ptp: must be")):
        with pytest.raises(python.UserError, match=said):
            LmtoolLM(arpa="de.arpa", **settings)


@needs_harness
def test_an_unknown_target_is_never_the_likeliest(files: Run) -> None:
    from lmtool.harness import LmtoolLM

    Path("unk.arpa").write_text(ARPA.replace("-1.2\t<unk>", "-0.01\t<unk>").replace("-0.4\ta b", "-3\ta b"))
    model = LmtoolLM(arpa="unk.arpa")
    found = asked(model, "loglikelihood", ("a", " zzz"), ("a", " <unk>"), ("zzz", " <unk>"))
    assert [greedy for _, greedy in found] == [False, True, True]  # type: ignore[misc]
    with pytest.warns(UserWarning, match=r"a high share is out of vocabulary .*83.3 % of the requests"):
        asked(model, "loglikelihood", ("", "v w x y z"))
    with pytest.warns(UserWarning, match="a high share is out of vocabulary"):
        asked(model, "loglikelihood_rolling", ("v w x y z",))


@needs_harness
def test_lines_and_requests(files: Run) -> None:
    from lmtool.harness import LmtoolLM

    model = LmtoolLM(arpa="de.arpa", words="punctuation", keep_punctuation=False)
    text = "a b\n\n...\na b"
    ((whole, _),) = asked(model, "loglikelihood", ("", text))  # type: ignore[misc]
    assert [whole] == pytest.approx(asked(model, "loglikelihood_rolling", (text,)))
    assert whole == pytest.approx(-2.2 * math.log(10), abs=1e-5), "a blank line has no </s>"
    ended = asked(model, "loglikelihood", ("a", "\n\nb"))[0][0]  # type: ignore[index]
    assert ended == pytest.approx(-2.1 * math.log(10), abs=1e-5), "</s> after a, -0.9, and b after <s>, -0.3 - 0.9"
    marked, unknown = asked(LmtoolLM(arpa="de.arpa"), "loglikelihood", ("", "<s> b"), ("", "zzz b"))
    assert marked == unknown


@needs_harness
def test_samples_differ_and_begin_with_a_space(files: Run, runs: Path) -> None:
    from lmtool.harness import LmtoolLM

    settings = {"do_sample": True, "temperature": 5.0, "max_gen_toks": 20}
    twice = [asked(LmtoolLM(arpa="de.arpa"), "generate_until", *[("a", settings)] * 8) for _ in range(2)]
    assert twice[0] == twice[1] and len(set(map(str, twice[0]))) > 1
    assert (
        len(set(map(str, asked(LmtoolLM(arpa="de.arpa"), "generate_until", *[("a", settings | {"seed": 3})] * 8)))) == 1
    )
    files(
        "train", "model=ngram", "data=toy", "data.vocabulary.unit=bpe", "data.vocabulary.size=300", "hydra.run.dir=bpe"
    )
    for name, context in ((f"{runs}/kn3", "the"), ("bpe", "the cat")):
        found = [asked(LmtoolLM(run=name), "generate_until", (f"{context}{end}", {}))[0] for end in ("", " ", "\n")]
        assert str(found[0]).startswith(" ") and found[1] == str(found[0])[1:] and not str(found[2]).startswith(" ")


@needs_harness
@pytest.mark.parametrize("name", ["kn3", "nplm", "char"])
def test_agrees_with_pairs_on_every_item(files: Run, runs: Path, name: str) -> None:
    from lm_eval import simple_evaluate

    from lmtool.harness import LmtoolLM

    words = [("the cat sat on the mat", "the cat on sat the mat"), ("a dog ran", "ran dog a"), *PAIRS]
    Path("pairs.jsonl").write_text(lines(words))
    found = simple_evaluate(LmtoolLM(run=f"{runs}/{name}"), tasks=["task.yaml"], log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"]["local_pairs"], key=lambda sample: sample["doc_id"])
    theirs = [[response[0][0] for response in sample["resps"]] for sample in samples]
    result = python.pairs(f"{runs}/{name}", "pairs.jsonl", items="items.jsonl")
    items = [json.loads(line) for line in Path("items.jsonl").read_text().splitlines()]
    ours = [[item["log_prob_nats_good"], item["log_prob_nats_bad"]] for item in items]
    assert np.array(theirs, dtype=float) == pytest.approx(np.array(ours), rel=1e-6)
    correct = [item["correct"] for item in items]
    assert [sample["acc"] for sample in samples] == [1 if half else 0 for half in correct], "ties are right for it"
    assert result.pairs == len(samples) == 7


@needs_harness
def test_the_command(files: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from lmtool import harness

    line = [
        "lm_eval",
        "--model",
        "lmtool",
        "--model_args",
        "arpa=de.arpa",
        "--tasks",
        "task.yaml",
        "--include_path",
        ".",
    ]
    monkeypatch.setattr(sys, "argv", line)
    assert harness.main() == 0
    assert "|acc   |↑  |  0.6|" in capfd.readouterr().out.replace("     ", "   ")
    monkeypatch.setattr(sys, "argv", [word.replace("de.arpa", "none.arpa") for word in line])
    assert harness.main() == 2
    assert capfd.readouterr().err.rstrip().endswith("check the path or set LMTOOL_DATA")


def test_the_command_without_the_harness(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    monkeypatch.delitem(sys.modules, "lmtool.harness", raising=False)
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("lmtool.harness", run_name="__main__")
    assert capsys.readouterr().err == 'lmtool: lmtool.harness needs lm-eval: pip install "lmtool[harness]"\n'
    with pytest.raises(python.UserError, match="needs lm-eval"):
        import_module("lmtool.harness")
