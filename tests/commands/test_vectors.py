"""Vectors of words: neighbors, and files for other programs."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import lmtool as package
from lmtool.commands._formats import write_vectors
from lmtool.neural.model import answers, nearest
from tests.conftest import Run, answer


def test_neighbors_of_vectors_set_by_hand() -> None:
    vectors = np.array([[1, 0], [3, 4], [10, 1], [0, 0], [-1, 0]], dtype=np.float32)
    ids, likeness = nearest(vectors, {0: 1}, 3, "cosine")
    assert ids.tolist() == [2, 1, 3]
    np.testing.assert_allclose(likeness, [10 / math.sqrt(101), 0.6, 0], rtol=1e-7)
    ids, likeness = nearest(vectors, {1: 1}, 9, "dot")
    assert ids.tolist() == [2, 0, 3, 4] and likeness.tolist() == [34, 3, 0, -3]


def test_neighbors_of_a_run(runs: Path, lmtool: Run) -> None:
    lmtool("neighbors", "cat", "dog", f"run={runs}/nplm", "top=2")
    found = answer()["words"]
    assert [each["word"] for each in found] == ["cat", "dog"] and all(len(each["neighbors"]) == 2 for each in found)
    loaded = package.load(runs / "nplm")
    vectors = loaded.model.encoder.embedding.weight.detach().numpy()
    cat = vectors[loaded.vocabulary.ids["cat"]]
    for row in found[0]["neighbors"]:
        other = vectors[loaded.vocabulary.ids[row["word"]]]
        assert row["cosine"] == pytest.approx(
            float(cat @ other / np.linalg.norm(cat) / np.linalg.norm(other)), rel=1e-5
        )
    lmtool("neighbors", "words=[cat]", f"run={runs}/nplm", "of=output", "by=dot", "top=100")
    ((each,),) = (answer()["words"],)
    assert len(each["neighbors"]) == 22 and "dot" in each["neighbors"][0]  # 23 words; the output has none for <s>


def test_sums_of_words_and_questions_by_hand(tmp_path: Path) -> None:
    # Unit vectors of gender and rank; only directions count for the cosine.
    words = {"man": (1, 0), "woman": (-2, 0), "king": (0.9, 0.5), "queen": (-0.9, 0.5), "thing": (0.1, -3)}
    vectors = np.array([*words.values()], dtype=np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ids, likeness = nearest(vectors, {2: 1, 1: 1, 0: -1}, 5, "cosine")  # king + woman - man
    query = unit[2] + unit[1] - unit[0]
    assert ids.tolist() == [3, 4]
    np.testing.assert_allclose(likeness, unit[[3, 4]] @ query / np.linalg.norm(query), rtol=1e-6)
    ids, likeness = nearest(vectors, {2: 1, 0: -1}, 2, "dot")  # (-0.1, 0.5)
    assert ids.tolist() == [3, 1] and likeness.tolist() == pytest.approx([0.34, 0.2])
    assert answers(vectors, np.array([[0, 2, 1], [0, 1, 2], [2, 3, 4]])).tolist() == [3, 3, 1]


def test_analogies_of_a_run(runs: Path, lmtool: Run) -> None:
    near = package.load(runs / "nplm").neighbors(["cat", "dog"], 3, minus="the")
    lmtool("neighbors", "cat", "dog", "minus=the", f"run={runs}/nplm", "top=3")
    (found,) = answer()["words"]
    assert found["word"] == "cat + dog - the"
    assert package.neighbors(["cat", "dog"], runs / "nplm", minus="the", top=3).words[0].word == "cat + dog - the"
    with pytest.raises(package.UserError, match=r"^word=\['cat', 'dog'\]: must be one word, unless minus= is given"):
        package.load(runs / "nplm").neighbors(["cat", "dog"])
    assert [each["word"] for each in found["neighbors"]] == [word for word, _ in near]
    assert not {"cat", "dog", "the"} & {word for word, _ in near}
    best = package.load(runs / "nplm").neighbors(["dog", "the"], 1, minus="cat")[0][0]
    Path("q.txt").write_text(f": one\ncat dog the {best}\ncat dog the sat\n\n: two\ncat dog the zebra\n")
    lmtool("neighbors", "questions=q.txt", f"run={runs}/nplm")
    sections = answer()["sections"]
    right = 1 + (best == "sat")
    assert [each["section"] for each in sections] == ["one", "two", "all"]
    assert [each["correct"] for each in sections] == [right, 0, right]
    assert [each["left_out"] for each in sections] == [0, 1, 1] and sections[0]["accuracy"] == right / 2
    Path("q.txt").write_text("cat dog the\n")
    for line, said in [
        (["questions=q.txt"], "q.txt:1: must be four words"),
        (["questions=q.txt", "words=[cat]"], "leave out words, minus and by"),
        (["cat", "minus=cat"], "minus=cat: must be on one side alone"),
    ]:
        assert said in lmtool("neighbors", *line, f"run={runs}/nplm", code=2)


# export


def read_text(path: Path) -> tuple[list[str], np.ndarray]:
    """As gensim reads it: fields between single spaces, float32 numbers."""
    lines = path.read_bytes().decode().split("\n")
    words, width = map(int, lines[0].split(" "))
    fields = [line.split(" ") for line in lines[1:-1]]
    assert len(fields) == words and all(len(each) == width + 1 for each in fields)
    return [each[0] for each in fields], np.array([each[1:] for each in fields], dtype=np.float32)


def test_vectors_are_read_back_as_they_were(runs: Path, lmtool: Run) -> None:
    loaded = package.load(runs / "nplm")
    want = loaded.model.encoder.embedding.weight.detach().numpy()
    lmtool("export", f"run={runs}/nplm", "to=v.vec")
    words, vectors = read_text(Path("v.vec"))
    assert words == list(loaded.vocabulary.words) and words[-1] == "<s>"
    np.testing.assert_array_equal(vectors, want)
    lmtool("export", f"run={runs}/nplm", "to=v.bin")
    raw = Path("v.bin").read_bytes()
    assert raw.startswith(b"24 8\nthe ") and len(raw) == 5 + sum(len(word) + 2 + 4 * 8 for word in words)
    np.testing.assert_array_equal(np.frombuffer(raw[9 : 9 + 32], dtype="<f4"), want[0])
    lmtool("export", f"run={runs}/nplm", "to=o.txt", "what=output")
    words, vectors = read_text(Path("o.txt"))
    np.testing.assert_array_equal(vectors, loaded.model.output.word_vectors().detach().numpy())
    assert len(words) == 23


def test_numbers_and_words_that_are_hard_to_write(tmp_path: Path) -> None:
    numbers = np.array([[1 / 3, 1e-45, 3.4028235e38], [-0.0, 16777217, 1.17549435e-38]], dtype=np.float32)
    write_vectors(["a b\n", "été"], numbers, tmp_path / "v.txt", binary=False)
    words, vectors = read_text(tmp_path / "v.txt")
    assert words == ["a<0x20>b<0x0A>", "été"]
    np.testing.assert_array_equal(vectors.view(np.int32), numbers.view(np.int32))


def test_arpa_is_what_convert_writes(runs: Path, lmtool: Run) -> None:
    lmtool("export", f"run={runs}/kn3", "to=a.arpa.gz")
    lmtool("convert", f"run={runs}/kn3", "to=b.arpa")
    assert gzip.decompress(Path("a.arpa.gz").read_bytes()) == Path("b.arpa").read_bytes()


@pytest.mark.parametrize("name", ["nplm", "hs"])
def test_weights_describe_themselves(name: str, runs: Path, lmtool: Run) -> None:
    lmtool("export", f"run={runs}/{name}", "to=model.safetensors")
    loaded = package.load(runs / name)
    with safe_open("model.safetensors", framework="np") as file:
        notes, found = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    about = json.loads(notes["description"])
    assert about["model"]["hidden_dim"] == 12 and about["output"]["kind"] in ("softmax", "hierarchical")
    assert json.loads(notes["words"]) == list(loaded.vocabulary.words)
    state = {key: tensor.numpy() for key, tensor in loaded.model.state_dict().items()}
    assert set(state) == {key for key in (*found, *about["tied"]) if not key.startswith("tree.")}
    for key, tensor in state.items():
        np.testing.assert_array_equal(found[about["tied"].get(key, key)], tensor)
    if name == "hs":
        np.testing.assert_array_equal(found["tree.children"], loaded.model.output.tree.children)
