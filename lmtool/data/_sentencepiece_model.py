"""Read a .model file of SentencePiece (Kudo & Richardson 2018) with its package, which needs protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lmtool.config.data import Unit
from lmtool.data.subwords import SPACE, Subwords, library_errors, require_table
from lmtool.errors import UserError
from lmtool.system.parallel import threads

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNITS = {1: Unit.unigram, 2: Unit.bpe}  # numbers of sentencepiece_model.proto, like the types of pieces below
UNKNOWN, CONTROL = 2, 3  # pieces without text
SYMBOL, BYTE = 4, 6  # user-defined symbols, which are always cut out whole; bytes
INSTALL = 'models of SentencePiece need its package: pip install "lmtool[subwords]"'


def subwords_of_model(raw: bytes, name: str, unit: Unit) -> Subwords:
    """Return the tokenizer in the bytes of a .model file. name: name of the file in errors."""
    model = _read(raw, name)
    found = UNITS.get(model.trainer_spec.model_type)
    if found is not unit:
        remedy = f"take data.vocabulary.unit={found.value}" if found else "take one of BPE or unigram"
        raise UserError(f"data.vocabulary.unit={unit.value}: {name} is of another kind; {remedy}")
    with library_errors(name):
        return Subwords(_tokenizer(model, unit), name)


def piece_lines(raw: bytes, name: str) -> Callable[[list[str]], list[str]]:
    """Return a function that writes lines, normalized by the model, as pieces between spaces, like `spm_encode`."""
    _read(raw, name)
    from sentencepiece import SentencePieceProcessor

    with library_errors(name, "a model that SentencePiece reads"):
        processor = SentencePieceProcessor(model_proto=raw)
    return lambda lines: list(map(" ".join, processor.encode(lines, out_type=str, num_threads=threads())))


def _read(raw: bytes, name: str) -> Any:
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise UserError(INSTALL) from None
    messages: Any = sentencepiece_model_pb2  # its names are created at run time
    try:
        model = messages.ModelProto.FromString(raw)
        if table := model.normalizer_spec.precompiled_charsmap:
            require_table(table)
    except (ValueError, DecodeError) as error:
        raise UserError(f"{name} is cut off or not a model of SentencePiece ({error})") from error
    if all(piece.type in (UNKNOWN, CONTROL) for piece in model.pieces):
        raise UserError(f"{name} is not a model of SentencePiece: it has no pieces")
    return model


def _tokenizer(model: Any, unit: Unit) -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    # The library would match <unk> and the like in a text like other pieces; no word begins with two spaces.
    names = [2 * SPACE * (each.type in (UNKNOWN, CONTROL)) + each.piece for each in model.pieces]
    unknown = next((number for number, each in enumerate(model.pieces) if each.type == UNKNOWN), None)
    table, byte_fallback = model.normalizer_spec.precompiled_charsmap, model.trainer_spec.byte_fallback
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(table)] if table else []
    symbols: list[str] = []
    piece_model: models.Model
    if unit is Unit.unigram:
        # SentencePiece gives a user-defined symbol this score, above those of all other pieces.
        scores = [-0.1 if each.type == SYMBOL else each.score for each in model.pieces]
        piece_model = models.Unigram(list(zip(names, scores, strict=True)), unk_id=unknown, byte_fallback=byte_fallback)
    else:
        numbers = {name: number for number, name in enumerate(names)}
        unk = None if unknown is None else names[unknown]
        piece_model = models.BPE(numbers, _merges(model), unk_token=unk, fuse_unk=True, byte_fallback=byte_fallback)
        symbols = [each.piece for each in model.pieces if each.type == SYMBOL]
    tokenizer = Tokenizer(piece_model)
    if symbols:  # matched in normalized text, leftmost and longest first; the text between them is merged
        steps.append(normalizers.Replace(" ", SPACE))
        tokenizer.add_tokens([AddedToken(text, normalized=True) for text in symbols])
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps) if symbols else steps[0]
    prepend = "never" if symbols else "always"  # otherwise, each text between two symbols would begin with a space
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=prepend)
    spaces = decoders.Replace(SPACE, " ")
    tokenizer.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _merges(model: Any) -> list[tuple[str, str]]:
    """Return the pairs of pieces whose concatenation is a piece, best score first, as SentencePiece merges them."""
    unmerged = (UNKNOWN, CONTROL, SYMBOL, BYTE)
    known = {each.piece: each.score for each in model.pieces if each.type not in unmerged}
    pairs = ((text[:cut], text[cut:]) for text in known for cut in range(1, len(text)))
    return sorted((pair for pair in pairs if known.keys() >= set(pair)), key=lambda pair: -known["".join(pair)])
