"""Python functions that make files and smaller models of finished runs: export, convert, merge, distill, report."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from lmtool.api.calls import Option
from lmtool.api.running import RunLike, call, folder_of, folders_of, named_run, replacing
from lmtool.results import TrainedRun, Written

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus


def export(run: RunLike, to: str | PathLike[str], **settings: Any) -> Written:
    """Write a run's model or word vectors for other programs, like `lmtool export`.

    to: a file whose suffix decides the format: .txt, .vec and .bin for word vectors, .arpa and .lm for n-grams,
    .safetensors for weights, .tsv.gz and .parquet for counts. settings: any other setting of `lmtool export`.
    """
    return call(Written, "export", named_run(run) | {"to": str(to), **settings}, None, False)


def push(run: RunLike, to: str, *, private: bool | None = None) -> Written:
    """Upload a run and its card to the Hugging Face Hub, like `lmtool push`. to: its name there, "hub:OWNER/NAME"."""
    return call(Written, "push", named_run(run) | {"to": to, "private": private}, None, False)


def convert(
    arpa: str | PathLike[str] | None = None,
    data: Option | Corpus | None = None,
    *,
    run: RunLike | None = None,
    runs: Sequence[RunLike] | None = None,
    weights: Sequence[float] | None = None,
    to: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> Written:
    """Convert an ARPA file, a run or several to a smaller n-gram model, in a run or a file, like `lmtool convert`.

    arpa: an ARPA file, whose run has the words of `data`. run: a run to make smaller, or to write to `to`. runs,
    weights: as in `merge`. to: an ARPA file, or G.fst.txt for a speech recognizer, to write instead of a run. out: the
    run folder; None: a new one. overwrite: as in `train`. settings: prune_entropy, prune_to, quantize,
    renormalize, limit_vocabulary, symbol_table.
    """
    given = {"arpa": None if arpa is None else str(arpa), "data": data, "to": None if to is None else str(to)}
    mixed = {"runs": None if runs is None else folders_of(runs), "weights": weights}
    named = {} if run is None else named_run(run)
    again = replacing(overwrite, out, [folder_of(each) for each in (run, *(runs or [])) if each is not None])
    return call(Written, "convert", given | mixed | named | settings, out, progress, keeps=to is None, again=again)


def merge(
    runs: Sequence[RunLike],
    weights: Sequence[float] | None = None,
    *,
    to: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Written:
    """Merge n-gram models into one with their linear mixture, like `lmtool convert runs=A,B weights=.6,.4`.

    runs: n-gram runs and ARPA files, with a weight each, or one linear mixture of such runs, which has weights already.
    to: a file to write instead of a run. out: the run folder; None: a new one. settings: as in `convert`.
    """
    return convert(runs=runs, weights=weights, to=to, out=out, progress=progress, **settings)


def distill(
    run: RunLike,
    like: RunLike,
    *,
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> TrainedRun:
    """Distill the probabilities of a network or mixture into the n-grams of an n-gram run, like `lmtool distil`.

    run: the run that provides the probabilities. like: the run that provides the n-grams. out: the run folder; None: a
    new one. overwrite: as in `train`. settings: tokens, device.
    """
    given = named_run(run) | {"like": str(folder_of(like))}
    again = replacing(overwrite, out, [folder_of(run), folder_of(like)])
    return call(TrainedRun, "distil", given | settings, out, progress, keeps=True, again=again)


def report_page(
    paths: Sequence[RunLike], *, out: str | PathLike[str] | None = None, progress: bool | None = None, **settings: Any
) -> Written:
    """Write a page with plots, like `lmtool report`.

    paths: runs, and folders of runs, evaluations, sweeps, comparisons and trees. out: the folder of the page; None: a
    new one. settings: map, words, levels.
    """
    return call(Written, "report", {"paths": folders_of(paths), **settings}, out, progress, keeps=True)
