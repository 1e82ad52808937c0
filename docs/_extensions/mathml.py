"""Formulas as MathML, made when the site is built.

A page needs no script, no font and no network for its formulas; a screen reader speaks them, and a formula that is no
LaTeX ends the build where it would be red letters in a reader's browser. MathJax, for comparison, is 1.1 MB that each
page loads. The converter is docutils' own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
# What people write, and docutils knows by another name.
SYNONYMS = (
    (re.compile(r"\\(begin|end)\{(?:split|align\*?|gathered)\}"), r"\\\1{aligned}"),
    (re.compile(r"\\dots(?![a-z])"), r"\\ldots "),
    (re.compile(r"\\bm(?![a-z])"), r"\\boldsymbol "),
    (re.compile(r"\\texttt(?![a-z])"), r"\\text"),
    (re.compile(r"\\tfrac(?![a-z])"), r"\\frac "),
    (re.compile(r"\\operatorname\*"), r"\\operatorname"),
)


def mathml(latex: str, *, block: bool, where: nodes.Node | None = None) -> str:
    """Return a formula in LaTeX as a <math> element; if it cannot be converted, warn and return it as written."""
    for pattern, known in SYNONYMS:
        latex = pattern.sub(known, latex)
    try:
        return str(tex2mathml(latex.strip(), as_block=block))
    except (MathError, AttributeError, IndexError) as error:
        logger.warning("a formula is no LaTeX that docutils knows (%s): %s", error, latex, location=where)
        return f"<code>{nodes.unescape(latex)}</code>"


def inline(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula within a line."""
    translator.body.append(mathml(node.astext(), block=False, where=node))
    raise nodes.SkipNode


def displayed(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula on a separate line, with its number if it has one."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node.get("number"):
        translator.body.append(f'<span class="eqno">({node["number"]})</span>')
    translator.body.append(mathml(node.astext(), block=True, where=node) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer `mathml`, for html_math_renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
