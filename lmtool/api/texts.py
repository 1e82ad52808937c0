"""Score the texts of an iterable one by one, or the words of a text: `lmtool.score_texts`, `lmtool.surprisal`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from lmtool.api.running import RunLike, load_model, run_verb
from lmtool.commands.surprisal import Surprisals
from lmtool.config.rules import require_flags
from lmtool.errors import UserError

if TYPE_CHECKING:
    import pandas

    from lmtool.evaluation.text_scores import TextScore


def score_texts(
    run: RunLike,
    texts: Iterable[str],
    *,
    run_out: RunLike | None = None,
    across_sentences: bool = False,
    device: str = "auto",
    options: str | PathLike[str] | None = None,
) -> Iterator[TextScore]:
    """Yield the score of each text in order, as in `lmtool score`: tokens, oov, log_prob, perplexity, difference.

    run: a run folder, the result of `train`, `ensemble` or `load`, or an ARPA file. texts: an iterable of strings, each
    a separate text whose lines are sentences; it is read some megabytes ahead of the scores. run_out: a second run, of
    general text, for the difference (Moore & Lewis 2010). across_sentences: whether contexts continue from line to line
    of a text, for networks trained this way; if False, each line is read separately. device: for neural models.
    options: as in `load`. Raises UserError immediately for a single string or a model with a cache, and for
    a non-string item when it is reached.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> [(score.tokens, score.oov) for score in lmtool.score_texts(run, ["the cat sat", "the bird"])]
    [(4, 0), (3, 1)]
    """
    from lmtool.evaluation.text_scores import ScoringModel, TextsScorer, scores_of

    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise UserError(f"texts={texts!r:.40}: give a list of texts, or another iterable, e.g. [{texts!r:.20}]")
    require_flags(across_sentences=across_sentences)
    runs = [run] if run_out is None else [run, run_out]
    models = [load_model(each, device, options) for each in runs]
    scoring = [ScoringModel(each.model, each.form, each.name) for each in models]
    return scores_of(_require_strings(texts), TextsScorer(*scoring, across=across_sentences))


def _require_strings(texts: Iterable[Any]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"texts[{number}] must be a string; got {type(text).__name__}")
        yield text


def surprisal(
    run: RunLike | Sequence[RunLike],
    text: str | PathLike[str] | Iterable[str | Sequence[str]] | pandas.DataFrame,
    *,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> pandas.DataFrame:
    """Return a DataFrame with a row per word as a reader sees it, with its surprisal, like `lmtool surprisal`.

    run: a run folder, the result of `train`, `ensemble` or `load`, or an ARPA file; or a list of these, each with
    its own columns. text: the path of a text or a table, as a pathlib.Path; sentences, each a string or a list of
    words; or a DataFrame with a word per row, which is returned with new columns, and the same rows and index.
    out: a folder for result.json. progress: as in `preprocess`. settings: any other setting of `lmtool surprisal`, e.g.
    words="ptb", spillover=1, entropy=True or to="surprisal.tsv". Raises UserError for text given as a single string,
    for a row without a word, and if pandas is not installed.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> lmtool.surprisal(run, ["the bird sat"])[["word", "oov"]]  # also surprisal, in bits, and more
       word  oov
    0   the    0
    1  bird    1
    2   sat    0
    """
    try:
        import pandas
    except ImportError:
        remedy = "pip install pandas, or write a table by lmtool surprisal to=FILE"
        raise UserError(f"lmtool.surprisal returns a DataFrame of pandas, which is not installed: {remedy}") from None
    from lmtool.commands.surprisal import score_rows
    from lmtool.data.word_rows import columns_of_sentences, rows_of_table

    if isinstance(text, str) or not isinstance(text, PathLike | Iterable):
        raise UserError(f"text={text!r:.40}: give a pathlib.Path, a DataFrame or a list of sentences")
    arguments: dict[str, Any] = {"run": run, **settings}
    if isinstance(item := arguments.get("item_column"), str):
        arguments["item_column"] = [item]
    if isinstance(text, PathLike):
        return run_verb(Surprisals, "surprisal", arguments | {"text": str(text)}, out, progress).to_pandas()

    spaces = None
    if isinstance(text, pandas.DataFrame):
        values, names = text.astype(object).where(text.notna(), None), list(map(str, text.columns))
        if len(set(names)) < len(names):
            raise UserError(f"text: it has two columns of one name ({', '.join(names)}): rename one")
        columns = {name: values.iloc[:, k].tolist() for k, name in enumerate(names)}
    else:
        lines: list[Any] = [
            each if isinstance(each, Iterable) else [each] for each in text
        ]  # whose error names the row
        columns, spaces = columns_of_sentences([lines], settings.get("sentences"))

    def score_columns(config: Any, session: Any) -> Surprisals:
        session.use_threads(config.threads)
        names = config.word_column, config.item_column, config.sentence_column
        return score_rows(config, session, [rows_of_table(columns, "text", *names, config.sentences, spaces=spaces)])

    arguments["text"] = "text"
    table = run_verb(Surprisals, "surprisal", arguments, out, progress, command=score_columns).to_pandas()
    if isinstance(text, pandas.DataFrame):
        return text.assign(**{name: table[name].array for name in table.columns if name not in columns})
    return table
