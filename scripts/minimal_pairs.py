"""BLiMP for models of big20, beside the figures published with it: what ./scripts/reproduce blimp computes."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
from measuring import corpora

PAIRS, ACCURACIES = "blimp.jsonl", "blimp.csv"  # files in the folder of the runs
TOKEN = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")  # as in big20, which is in lower case
PUBLISHED = {"ngram": "n-gram", "lstm": "LSTM"}  # of Warstadt et al. (2020)


def prepare(folder: Path) -> None:
    """Write blimp.jsonl: all pairs, with their sentences in the form of big20."""
    with zipfile.ZipFile(corpora() / "blimp" / "BLiMP.zip") as packed, open(folder / PAIRS, "w") as file:
        for name in sorted(packed.namelist()):
            if name.startswith("data/") and name.endswith(".jsonl"):
                for line in packed.read(name).decode().splitlines():
                    pair = json.loads(line)
                    for key in ("sentence_good", "sentence_bad"):
                        pair[key] = " ".join(TOKEN.findall(pair[key].lower()))
                    file.write(json.dumps(pair) + "\n")


def table(folder: Path, recipe: dict[str, Any]) -> list[str]:
    """Return the Markdown table of accuracies by phenomenon, means over its paradigms, with the published ones."""
    published = pd.read_json(corpora() / "blimp" / "models_summary.jsonl", lines=True).set_index("UID").drop("overall")
    accuracies = pd.read_csv(folder / ACCURACIES)
    ours = accuracies[accuracies["level"] == "paradigm"].set_index("name")
    shown = {row["what"]: ours[f"{row['run']} accuracy"] for row in recipe["row"]}
    shown |= {name: published[key] for key, name in PUBLISHED.items()}
    by_paradigm = pd.DataFrame(shown).join(published["linguistics_term"], validate="1:1")
    by_phenomenon = by_paradigm.groupby("linguistics_term").mean()
    by_phenomenon.loc["**all paradigms**"] = by_paradigm[list(shown)].mean()
    lines = [f"| | {' | '.join(shown)} |", f"|---|{'--:|' * len(shown)}"]
    for name, means in by_phenomenon.iterrows():
        lines.append(f"| {str(name).replace('_', ' ')} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    overall = accuracies.iloc[0]
    for what, *keys in ("95 % interval", "lower", "upper"), ("ties, each half right", "ties"):
        figures = [[overall[f"{row['run']} {key}"] for key in keys] for row in recipe["row"]]
        cells = [" to ".join(f"{figure:.3g}" for figure in both) for both in figures]
        lines.append(f"| {what} | {' | '.join(cells)} |{' |' * len(PUBLISHED)}")
    return lines
