"""Print the tables of a notebook on Morin & Bengio (2005): codes, parameters, losses, and the path to a word."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import lmtool

TEXT = Path(__file__).with_name("sentences.txt")
PARTS = {  # names of the paper, and of lmtool
    "C, embeddings": ["encoder.embedding.weight"],
    "W, context to hidden": ["output.nodes.hidden.weight"],
    "U, node to hidden": ["output.nodes.node_map.weight"],
    "c": ["output.nodes.hidden.bias"],
    "beta": ["output.nodes.beta"],
    "N and alpha, of the nodes": ["output.nodes.nodes", "output.nodes.alpha"],
}


def main() -> None:
    vocabulary = {"closed": True}  # 42 words, without <unk>
    data = {"kind": "text", "name": "notebook", "train": TEXT, "valid": TEXT, "vocabulary": vocabulary}
    data["sentence_end"] = False  # no </s>
    with TemporaryDirectory() as folder:
        settings = {"experiment": "morin_bengio2005_toy", "tree": {"split": "floor"}}
        run = lmtool.train(data=data, out=folder, **settings)
        model = run.model
        print("word       code")
        for word, code in sorted(model.tree.codes.items()):
            print(f"{word:10} {code}")
        sizes = model.model.parameter_sizes()
        print("\npart                        parameters")
        for part, names in PARTS.items():
            print(f"{part:26}  {sum(sizes[name] for name in names):10,}")
        print(f"{'all':26}  {sum(sizes.values()):10,}")
        lines = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
        losses = [line["loss"] for line in lines if "loss" in line]
        steps = len(losses) // 25  # of an epoch
        print("\nepoch  loss of a word, nats")
        for epoch in range(25):
            print(f"{epoch + 1:5}  {fmean(losses[epoch * steps : (epoch + 1) * steps]):.3f}")
        print(f"\n{model.paths('a gull follows', 'the')}")


if __name__ == "__main__":
    main()
