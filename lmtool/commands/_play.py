"""A model as a page to play with: the template play.html.j2, and its script play.js, which has the models' formulas."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lmtool import __version__
from lmtool.config.data import Normalize, Spaces
from lmtool.config.verbs import BITS_OF_DTYPE
from lmtool.data.text_form import TextForm
from lmtool.data.text_rules import FORMS, TURKIC, space_table
from lmtool.errors import UserError, escape_controls
from lmtool.ngram.models.ngram_model import NgramModel, quantized_notes
from lmtool.ngram.tables.quantized import QuantizedValues
from lmtool.plots.style import DARK, LIGHT
from lmtool.report.reading import model_name
from lmtool.results.base import NOT_COMPARABLE
from lmtool.runs.run import Run
from lmtool.session import Session
from lmtool.system.arrays import Array
from lmtool.system.files import atomic_write
from lmtool.text_model import TextModel

MAX_BYTES = 8_000_000
KINDS = {  # what play.js calls the classes of encoders and output layers
    **{"NPLM": "nplm", "CBOW": "cbow", "LBL": "lbl", "Recurrent": "lstm", "HierarchicalSoftmax": "hierarchical"},
    **dict.fromkeys(("FullSoftmax", "NCELoss", "SampledSoftmax"), "softmax"),
}
SUPPORTED = "model=ngram, nplm, hsoftmax, nce, skip_layer, lbl, cbow, lstm; output=softmax, nce, sampled, hierarchical"


def write_page(
    loaded: TextModel, run: Run, to: Path, dtype: str | None, session: Session
) -> tuple[str, dict[str, Any]]:
    """Write the page of a run's model; return a description, and the number of n-grams by order or of weights.

    dtype: of a network's matrices; None for float16. Raises UserError, and writes nothing, for a model and for rules of
    text that play.js does not have, and for a page of more than MAX_BYTES.
    """
    vocabulary, rules, model = loaded.vocabulary, _rules(loaded.form, run), loaded.model
    if isinstance(model, NgramModel):
        if dtype is not None:
            raise UserError(f"dtype={dtype}: the values of n-grams are rounded to 8 bits: leave it out")
        about, arrays = _ngrams(model, session)
        sizes: dict[str, Any] = {"ngrams": model.table.sizes}
        size = f"{sum(model.table.sizes):,} n-grams, rounded to {about['bits']} bits"
    else:
        about, arrays = _network(loaded, run, dtype or "float16")
        sizes = {"parameters": loaded.network.parameter_count}
        size = f"{sizes['parameters']:,} weights, rounded to {dtype or 'float16'}"
    arrays["vocabulary"] = np.frombuffer(json.dumps(vocabulary.words).encode(), np.uint8)
    special = vocabulary.special_tokens._asdict() | ({"unk": None} if vocabulary.closed else {})
    about |= special | {"rules": rules, "sentences": vocabulary.sentences}
    about["arrays"] = [[name, array.dtype.str[1:], array.shape] for name, array in arrays.items()]
    columns = (np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8).T.tobytes() for array in arrays.values())
    folder = Path(__file__).parent
    script = (folder / "play.js").read_text(encoding="utf-8")
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)
    page = environment.get_template("play.html.j2").render(
        title=escape_controls(run.folder.resolve().name),
        introduction=escape_controls(f"{model_name(run)}: {size}, by lmtool {__version__}"),
        model=loaded,
        output=about["output"],
        not_comparable=NOT_COMPARABLE,
        about=Markup(json.dumps(about).replace("<", "\\u003c")),
        arrays=base64.b64encode(gzip.compress(b"".join(columns), mtime=0)).decode(),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        light=LIGHT,
        dark=DARK,
    )
    content = page.encode()
    megabytes, limit = len(content) / 1e6, MAX_BYTES / 1e6
    if megabytes > limit:
        share = f"lmtool convert run={run.folder} prune_to={90 * limit / megabytes:.0f}% makes a smaller model"
        remedy = "set dtype=int8, or train with a smaller data.vocabulary.size or model.embedding_dim"
        remedy = share if "ngrams" in sizes else remedy.removeprefix("set dtype=int8, or " * (dtype == "int8"))
        raise UserError(f"to={to}: the page would have {megabytes:.2f} MB, over {limit:.2f}: {remedy}")
    with atomic_write(to) as temporary:
        temporary.write_bytes(content)
    return f"{size}; {megabytes:.2f} MB, open it in a browser", sizes


def _rules(form: TextForm, run: Run) -> dict[str, Any]:
    """Return the rules of text as play.js applies them. Raises UserError for those that it does not have."""
    rules, cut = form.rules, form.unit.value
    if cut not in ("word", "char") or rules.segmenter or rules.normalize is Normalize.ccnet or rules.lowercase == "lt":
        others = "a segmenter, data.normalize=ccnet and data.vocabulary.lowercase=lt"
        raise UserError(f"{run.folder} has text of unit={cut}: pages have unit=word and char, without {others}")
    spaces = {chr(point): space or "" for point, space in space_table().items()}
    lowercase = "tr" if rules.lowercase in TURKIC else bool(rules.lowercase)
    found = {"chars": form.chars, "tags": form.tags, "lowercase": lowercase, "form": FORMS.get(rules.normalize)}
    return found | {"spaces": spaces if rules.spaces is Spaces.unicode else None}


def _ngrams(model: NgramModel, session: Session) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return what play.js reads of an n-gram model, and its arrays; note how far the quantized model is from one."""
    quantized = NgramModel(model.table if model.table.quantized_bits else model.table.quantize(8), model.vocabulary)
    session.note(*quantized_notes(quantized))
    table, trie, none = quantized.table, quantized.table.trie, [np.zeros(0, dtype=np.int64)]
    children = none + [np.diff(trie.begins(k, 0, trie.sizes[k - 1])) for k in range(1, table.order)]
    words = none + [trie.words(k, 0, trie.sizes[k - 1]) for k in range(2, table.order + 1)]
    pairs = ("children", np.concatenate(children)), ("words", np.concatenate(words))
    arrays = {name: array.astype(np.min_scalar_type(int(array.max(initial=0)))) for name, array in pairs}
    arrays["missing"] = np.array([table.missing], np.float32)
    arrays["unigrams"] = quantized.lookup.compiled.unigrams.astype(np.float32)
    arrays["backoff_unigrams"] = table.log_backoff[: table.vocabulary_size]
    for prefix, values in ("", table.log_prob), ("backoff_", table.log_backoff):
        assert isinstance(values, QuantizedValues)
        codes = values.codes[0 : values.codes.length].astype(np.uint8)
        arrays |= {f"{prefix}levels": values.levels, f"{prefix}codes": codes}
    return {"output": "ngram", "order": table.order, "bits": table.quantized_bits, "tied": {}}, arrays


def _network(loaded: TextModel, run: Run, dtype: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return what play.js reads of a network, and its weights. Raises UserError for a model that it does not have."""
    from lmtool.neural.model import NeuralModel
    from lmtool.runs.weights import arrays_of

    model, kinds = loaded.model, list[str]()
    if isinstance(model, NeuralModel):  # a custom class of the same name has another formula
        parts = [type(part) for part in (model.encoder, model.output) if type(part).__module__.startswith("lmtool.")]
        kinds = [KINDS[part.__name__] for part in parts if part.__name__ in KINDS]
    if not isinstance(model, NeuralModel) or len(kinds) < 2:
        raise UserError(f"{run.folder} is {model_name(run)}: pages are made of {SUPPORTED}")
    arrays, tied = arrays_of(model, BITS_OF_DTYPE[dtype])
    arrays = {name: array for name, array in arrays.items() if array.dtype.kind == "f" or array.dtype == np.int8}
    if model.output.tree is not None:
        arrays |= {"tree.children": model.output.tree.children, "tree.leaf_words": model.output.tree.leaf_words}
    about = {"encoder": kinds[0], "output": kinds[1], "config": run.config["model"], "tied": tied}
    return about | {"context_size": model.context_size}, arrays
