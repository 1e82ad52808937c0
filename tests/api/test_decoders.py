"""Real decoders: pyctcdecode and flashlight-text find the same beams and scores with our model as with KenLM's.

pyctcdecode needs numpy below 2, so these tests run in a separate environment, by `./scripts/test tools`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmtool
from lmtool import kenlm as ours

ROOT = Path(__file__).resolve().parents[2]
TEXT = """the cat sat on the mat
the dog sat on the log
a cat and a dog met on the mat
the cat met the dog
a log lay on a mat and the dog sat
the mat lay on the log
"""
LETTERS = ["", *"abcdeghlmnosty", " "]  # CTC's blank first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs kn3 and kn2, their mixture, and kn3.arpa."""
    folder = tmp_path_factory.mktemp("decoders")
    lines = TEXT.splitlines() * 3
    corpus = lmtool.Corpus.from_texts(train=lines, valid=lines[:2])
    runs = [lmtool.train({"kind": "ngram", "order": n}, corpus, out=folder / f"kn{n}") for n in (3, 2)]
    lmtool.ensemble(runs, out=folder / "mix", weights=[0.5, 0.5], split="valid")
    lmtool.export(folder / "kn3", folder / "kn3.arpa")
    return folder


@pytest.fixture
def emissions() -> np.ndarray:
    """log p of 15 letters and the blank in 60 frames, float32: a blurred "the cat sat on a log" of a seed."""
    rng = np.random.default_rng(3)
    spoken = [c for letter in "the cat sat on a log" for c in (letter, "", letter)]
    scores = rng.normal(size=(len(spoken), len(LETTERS)))
    scores[np.arange(len(spoken)), [LETTERS.index(letter) for letter in spoken]] += 2.0
    return (scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.tool("kenlm", "pyctcdecode")
def test_pyctcdecode(folder: Path, emissions: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """`import lmtool.kenlm as kenlm` is the whole change; a mixture decodes, too."""
    import kenlm
    import pyctcdecode
    from pyctcdecode import language_model

    words = sorted(set(TEXT.split()))

    def beams(module: Any, path: Path) -> list[Any]:
        monkeypatch.setattr(language_model, "kenlm", module)
        model = language_model.LanguageModel(module.Model(str(path)), words, alpha=0.7, beta=1.2)
        decoder = pyctcdecode.BeamSearchDecoderCTC(pyctcdecode.Alphabet.build_alphabet(LETTERS), model)
        return [(beam[0], beam[-2], beam[-1]) for beam in decoder.decode_beams(emissions, beam_width=60)]

    wanted, got = beams(kenlm, folder / "kn3.arpa"), beams(ours, folder / "kn3")
    assert len(wanted) > 10
    assert [text for text, _, _ in got] == [text for text, _, _ in wanted]
    np.testing.assert_allclose([beam[1:] for beam in got], [beam[1:] for beam in wanted], atol=1e-4)
    mixed = beams(ours, folder / "mix")
    assert mixed[0][0].startswith("the cat sat on") and mixed[0][2] != got[0][2]


@pytest.mark.tool("flashlight.lib.text")
def test_flashlight(folder: Path, emissions: np.ndarray) -> None:
    """The lexicon decoder with docs/examples/flashlight_lm.py beside its own KenLM."""
    from flashlight.lib.text import decoder as flashlight
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    path = ROOT / "docs" / "examples" / "flashlight_lm.py"
    spec = importlib.util.spec_from_file_location("flashlight_lm", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    words = sorted(set(TEXT.split()))
    dictionary = Dictionary()
    for word in [*words, "<unk>"]:
        dictionary.add_entry(word)

    def decode(lm: Any) -> list[tuple[list[int], float, float]]:
        trie = flashlight.Trie(len(LETTERS), len(LETTERS) - 1)
        start = lm.start(False)
        for index, word in enumerate(words):
            score = lm.score(start, index)[1]
            trie.insert([*map(LETTERS.index, word), len(LETTERS) - 1], index, score)
        trie.smear(flashlight.SmearingMode.MAX)
        options = flashlight.LexiconDecoderOptions(
            beam_size=50,
            beam_size_token=len(LETTERS),
            beam_threshold=50.0,
            lm_weight=1.5,
            word_score=0.3,
            unk_score=-float("inf"),
            sil_score=0.0,
            log_add=False,
            criterion_type=flashlight.CriterionType.CTC,
        )
        decoder = flashlight.LexiconDecoder(options, trie, lm, len(LETTERS) - 1, 0, len(words), [], False)
        frames = np.ascontiguousarray(np.concatenate([emissions, emissions[-4:-3] * 0 - 9]))
        frames[-1, len(LETTERS) - 1] = 0.0  # ends with a space, as a lexicon's words do
        results = decoder.decode(frames.ctypes.data, len(frames), len(LETTERS))
        return [([w for w in result.words if w >= 0], result.score, result.lmScore) for result in results]

    wanted = decode(KenLM(str(folder / "kn3.arpa"), dictionary))
    got = decode(example.LmtoolLM(lmtool.load(folder / "kn3"), [*words, "<unk>"]))
    assert len(wanted) > 10 and [words[w] for w in wanted[0][0]][:4] == ["the", "cat", "sat", "on"]
    assert [result[0] for result in got] == [result[0] for result in wanted]
    np.testing.assert_allclose([r[1:] for r in got], [r[1:] for r in wanted], atol=1e-3)
    mixed = decode(example.LmtoolLM(lmtool.load(folder / "mix"), [*words, "<unk>"]))
    assert mixed[0][0][:4] == wanted[0][0][:4] and mixed[0][2] != got[0][2]
