r"""The n-gram model: a word depends on the n-1 words before it.

.. math::

    p(w_1 \dots w_T) = \prod_{t=1}^{T} p(w_t\,|\,w_{t-n+1} \dots w_{t-1})

n is the order. Each p(w|h) is estimated from the counts of n-grams by a smoother (group `smoother`) and kept in
back-off form: the probability of each n-gram that is in the model, and a weight b of each context,

.. math::

    p(w|h) = \begin{cases} p_{hw} & \text{if } hw \text{ is in the model} \\ b_h\,p(w|h') & \text{otherwise}
    \end{cases}

Source: Shannon (1948), "A mathematical theory of communication", after Markov (1913); as a model of speech Bahl,
    Jelinek & Mercer (1983), IEEE PAMI 5; the back-off form Katz (1987), eq. 2.
Complexity: O(n T) to count T tokens, by radix sorts; p(w|h) in running text by n searches among the words that follow
    a context, O(log V) each; about ten bytes for each n-gram, in memory and on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.config.groups import CountModelConfig

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.language_model import LanguageModel
    from lmtool.ngram.models.ngram_model import Units


@dataclass(slots=True)
class NgramModelConfig(CountModelConfig):
    """order: n, from 1 to 16."""

    def units(self, corpus: Corpus) -> Units:
        """Return words as units."""
        from lmtool.ngram.models.ngram_model import Words

        return Words(corpus)

    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        """Load the model of a run. Raises UserError if its file is missing, damaged, or of another vocabulary."""
        from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel

        return NgramModel.load(folder / NGRAM_FILE, vocabulary)
