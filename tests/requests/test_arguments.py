"""What a verb is given without a key comes through as it was typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lmtool.config.grammar import quote_text
from lmtool.errors import UserError
from lmtool.requests.arguments import add_bare_key, split_line
from tests.conftest import Run, answer

TEXTS = [
    *(
        "the cat",
        "it's",
        'a "b"',
        "a, b",
        "[x",
        "{a: b}",
        "a=b c",
        "text = 1",
        "run, top=3",
        "back\\slash",
        "end\\",
        "\\'",
        "\\\\'",
    ),
    *("${x}", "a \\${x} b", "été 猫", "", "null", "3", "true", "~ +", "- a", "(x)", "a\tb", "x:y", "#", "$", "@"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_means_itself(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    line = split_line(["predict", text])
    verb, (word,) = line.verb, line.overrides
    override = OverridesParser.create().parse_override(word)
    assert verb == "predict" and override.key_or_group == "text" and not override.is_sweep_override()
    assert OmegaConf.create({"text": override.value()}).text == text


def test_a_text_comes_through_to_the_result(runs: Path, lmtool: Run) -> None:
    text = "it's \\' \"a=b\", [${x}] été \\"
    lmtool("predict", text, f"run={runs}/kn3", "oov=unk", "top=1")
    assert answer()["contexts"][0]["text"] == text
    lmtool("generate", "-m", "the, cat's", "seed=1,2", f"run={runs}/kn3", "oov=unk", "count=1")
    found = [json.loads(path.read_text()) for path in sorted(Path("multirun").glob("generate/*/*/result.json"))]
    assert [each["seed"] for each in found] == [1, 2]
    assert all(each["texts"][0].startswith("<unk> <unk>") for each in found)


def test_what_is_a_setting_and_what_is_not() -> None:
    assert add_bare_key("predict", ["top=3", "a b", "run=x"]) == ["top=3", "run=x", "text='a b'"]
    assert add_bare_key("predict", ["text=the cat", "tpo=3"]) == ["text=the cat", "tpo=3"]
    assert add_bare_key("predict", ["~run", "++top=3", "hydra/x@y=z"]) == ["~run", "++top=3", "hydra/x@y=z"]
    for word, hint in (("-", "WORD"), ("-man", "man")):
        with pytest.raises(UserError, match=f"^no flag {word}; to subtract a word, write minus={hint}$"):
            split_line(["neighbors", "king", word, "woman"])
    assert add_bare_key("neighbors", ["cat", "b,c", "top=3"]) == ["top=3", "words=['cat','b,c']"]
    assert add_bare_key("train", ["a b"]) == ["a b"]
    line = split_line(["predict", "- a", "--cfg", "job"])
    assert (line.verb, line.flags, line.overrides) == ("predict", {"--cfg": "job"}, ["text='- a'"])
    assert quote_text("a\\") == "'a\\\\'"
    with pytest.raises(UserError, match="'a' and 'b' are two"):
        add_bare_key("predict", ["a", "b"])
    with pytest.raises(UserError, match="not UTF-8"):
        add_bare_key("predict", ["\udcff"])
