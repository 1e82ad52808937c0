"""Trees that follow WordNet's is-a hierarchy (Fellbaum 1998), as in Morin & Bengio (2005): groups within groups."""

from __future__ import annotations

import heapq
import importlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.errors import UserError
from lmtool.system.arrays import IntArray, word_counts
from lmtool.trees.builders import arrange_tree
from lmtool.trees.tree import Tree

USUAL_FOLDER = Path("/usr/share/wordnet")
INSTALL = "install wordnet-base (Debian, Ubuntu) or give tree.folder=PATH; and pip install 'lmtool[wordnet]'"
SPEECH = ("noun", "verb", "adj", "adv")
NEEDED = ("cntlist.rev", *(name for pos in SPEECH for name in (f"index.{pos}", f"data.{pos}", f"{pos}.exc")))
OTHERS, NOUNS, VERBS = 0, 1, 2  # the top groups

# Function words, which WordNet lacks: its entries of these spellings are inches, arsenic, Oregon and the like.
LISTED = """
    a an and as at but by can for he her him his i if in it its me might must my no nor not of off on or our out over
    shall she so than that the their them then there they this to up us we what which who will with you your
"""
FUNCTION_WORDS = frozenset(LISTED.split())
Item = tuple[int, int, int]  # count; position, for ties; node, or -1 - word


def find_wordnet(folder: Path | None) -> Path:
    """Return the folder of WordNet's files: `folder`, or if None the first of WNSEARCHDIR, WNHOME/dict, the usual."""
    usual = [Path(os.environ["WNSEARCHDIR"])] if os.environ.get("WNSEARCHDIR") else []
    usual += [Path(os.environ["WNHOME"], "dict")] if os.environ.get("WNHOME") else []
    folders = [*usual, USUAL_FOLDER] if folder is None else [folder]
    for candidate in folders:
        if all((candidate / name).is_file() for name in NEEDED):
            return candidate
    raise UserError(f"no WordNet in {', '.join(map(str, folders))}: {INSTALL}")


@contextmanager
def _reader(folder: Path) -> Iterator[Any]:
    """Open NLTK's reader of the files in `folder`.

    NLTK opens files only below the folders of `nltk.data.path`, and asks for `lexnames` and `index.sense`, which
    Debian's WordNet lacks and nothing here uses. Therefore the files are copied into a private folder in the layout of
    NLTK's data, with stubs for those two.
    """
    try:
        allowed: list[str] = importlib.import_module("nltk.data").path
        reader = importlib.import_module("nltk.corpus.reader.wordnet")
    except ImportError as error:
        raise UserError(f"the WordNet tree needs NLTK: {INSTALL}") from error
    with tempfile.TemporaryDirectory(prefix="lmtool-wordnet-") as temporary, ExitStack() as opened:

        class Reader(reader.WordNetCorpusReader):  # type: ignore[misc, name-defined]
            def open(self, file: str) -> Any:  # NLTK never closes some files
                return opened.enter_context(super().open(file))

        copied = Path(temporary) / "corpora" / "wordnet"
        copied.mkdir(parents=True)
        for name in NEEDED:
            shutil.copyfile(folder / name, copied / name)
        names = [f"{number:02d}\tfile{number:02d}\t1\n" for number in range(45)]
        (copied / "lexnames").write_text("".join(names), encoding="ascii")
        (copied / "index.sense").touch()
        allowed.insert(0, temporary)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The multilingual functions are not available")
                wordnet_reader = Reader(str(copied), None)
            yield wordnet_reader
        finally:
            allowed.remove(temporary)


def _sense(reader: Any, word: str) -> Any:
    """Return a word's first sense as noun or verb, whichever is more frequent; None if it is neither."""
    form = word.lower()
    if len(form) < 2 or form in FUNCTION_WORDS or not form[0].isalpha():
        return None
    senses = {pos: synsets[0] for pos in ("n", "v") if (synsets := reader.synsets(form, pos=pos))}

    def frequency(pos: str) -> int:
        base = reader.morphy(form, pos)
        return sum(lemma.count() for lemma in senses[pos].lemmas() if lemma.name().lower() == base)

    if len(senses) == 2:  # counts are slow to look up
        return senses["v" if frequency("v") > frequency("n") else "n"]
    return next(iter(senses.values()), None)


def wordnet_groups(words: Sequence[str], folder: Path) -> tuple[list[int], IntArray]:
    """Return each group's parent `[G]`, -1 for the three at the top, and the group of each word `[W]`.

    Groups are the synsets of the words and those above them, each below its first hypernym (for a name, the synset that
    it is an instance of). Words that WordNet does not know as noun or verb are in group OTHERS.
    """
    parents = [-1, -1, -1]  # parents of the groups of others, nouns and verbs
    group_of = np.full(len(words), OTHERS, dtype=np.int64)
    numbers: dict[str, int] = {}
    with _reader(folder) as reader:
        for word, name in enumerate(words):
            synset = _sense(reader, name)
            lower = -1  # the group that waits for its parent
            while synset is not None:
                known = synset.name() in numbers
                number = numbers.setdefault(synset.name(), len(parents))
                if lower < 0:
                    group_of[word] = number
                else:
                    parents[lower] = number
                if known:
                    break
                # At the top until its hypernym is found; verbs in cycles of hypernyms stay there.
                parents.append(VERBS if synset.pos() == "v" else NOUNS)
                lower = number
                above = synset.hypernyms() or synset.instance_hypernyms()
                synset = above[0] if above and not _leads_to(above[0], number, numbers, parents) else None
    return parents, group_of


def _leads_to(synset: Any, number: int, numbers: dict[str, int], parents: list[int]) -> bool:
    """Return whether the path from a synset to the top passes group `number`."""
    group = numbers.get(synset.name(), -1)
    while group >= 0 and group != number:
        group = parents[group]
    return group == number


def _join_items(items: list[Item], children: list[tuple[int, int]]) -> tuple[int, int]:
    """Join the two items of smallest counts until one is left, appending to `children`; return its count and node."""
    heapq.heapify(items)
    position = len(items)
    while len(items) > 1:
        lighter, heavier = heapq.heappop(items), heapq.heappop(items)
        children.append((heavier[2], lighter[2]))
        heapq.heappush(items, (lighter[0] + heavier[0], position, len(children) - 1))
        position += 1
    return items[0][0], items[0][2]


def binary_hierarchy(parents: Sequence[int], group_of: IntArray, counts: IntArray) -> Tree:
    """Build the binary tree in which the words of every group are the leaves below one node.

    parents: `[G]`, the group that contains each group, -1 for one at the top. group_of: int64 `[W]`, the group that
    directly contains each word. counts: int64 `[W]`. The groups and words within a group are joined by a Huffman tree.
    A group with a single member, or none, adds no node.
    """

    @cache
    def depth(group: int) -> int:
        return 0 if group < 0 else 1 + depth(parents[group])

    members: list[list[Item]] = [[] for _ in range(len(parents) + 1)]  # the last one is the top
    for word in np.argsort(counts, kind="stable").tolist():
        group_members = members[group_of[word]]
        group_members.append((int(counts[word]), len(group_members), -1 - word))
    children: list[tuple[int, int]] = []
    for group in sorted(range(len(parents)), key=depth, reverse=True):
        if members[group]:
            count, node = _join_items(members[group], children)
            outer = members[parents[group]]
            outer.append((count, len(outer), node))
    _join_items(members[-1], children)
    return arrange_tree(np.array(children, dtype=np.int32), len(children) - 1, np.arange(len(counts)))


def wordnet_tree(words: Sequence[str], counts: IntArray, folder: Path | None) -> Tree:
    """Build the tree over words `[W]`, with counts int64 `[W]`, that follows WordNet's nouns and verbs.

    A word is placed at its first, most frequent sense, looked up in lower case and by its base form. Other words
    (function words, names, numbers, `<unk>`) have a separate Huffman tree beside nouns and verbs. folder: the folder of
    WordNet's files; None for the usual places. Raises UserError if WordNet or NLTK is missing, and ValueError for
    counts of another number of words.

    >>> from lmtool.trees import wordnet_tree
    >>> wordnet_tree(["dog", "cat", "run"], [3, 2, 1], None).depths.tolist()  # doctest: +SKIP
    [2, 2, 1]
    """
    counts = word_counts("wordnet_tree: counts", counts, len(words))
    parents, group_of = wordnet_groups(words, find_wordnet(folder))
    return binary_hierarchy(parents, group_of, counts)
