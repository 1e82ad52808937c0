"""BLiMP for models of big20, beside the figures published with it: what ./scripts/reproduce blimp computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from measuring import corpora

PUBLISHED = {"ngram": "n-gram, published", "lstm": "LSTM, published"}  # by Warstadt et al. (2020)


def table(folder: Path, recipe: dict[str, Any]) -> list[str]:
    """Return the Markdown table of accuracies by phenomenon, means over its paradigms, with the published ones."""
    published = pd.read_json(corpora() / "blimp" / "models_summary.jsonl", lines=True).set_index("UID").drop("overall")
    files = {row["what"]: folder / f"{row['run']}-blimp.csv" for row in recipe["row"]}
    accuracies = {name: pd.read_csv(path) for name, path in files.items() if path.exists()}
    shown = {
        name: table[table["level"] == "paradigm"].set_index("name")["accuracy"] for name, table in accuracies.items()
    }
    shown |= {name: published[key] for key, name in PUBLISHED.items()}
    by_paradigm = pd.DataFrame(shown).join(published["linguistics_term"], validate="1:1")
    by_phenomenon = by_paradigm.groupby("linguistics_term").mean()
    by_phenomenon.loc["**all paradigms**"] = by_paradigm[list(shown)].mean()
    lines = [f"| | {' | '.join(shown)} |", f"|---|{'--:|' * len(shown)}"]
    for name, means in by_phenomenon.iterrows():
        lines.append(f"| {str(name).replace('_', ' ')} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    for what, digits, *keys in ("95 % interval", 3, "lower", "upper"), ("ties, each half right", 0, "ties"):
        cells = [" to ".join(f"{table.loc[0, key]:.{digits}f}" for key in keys) for table in accuracies.values()]
        lines.append(f"| {what} | {' | '.join(cells)} |{' |' * len(PUBLISHED)}")
    left_out = [name for name in files if name not in accuracies]
    return lines + (["", f"Not run: {', '.join(left_out)}."] if left_out else [])
