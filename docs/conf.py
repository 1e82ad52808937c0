"""How Sphinx builds the site: ./scripts/docs. See docs/development/site.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS / "_extensions"), str(DOCS.parent)]

from lmtool import __version__  # noqa: E402 - found by the line before

WITH_GALLERY = tags.has("gallery")  # noqa: F821 - Sphinx gives this file the tags of its command line
GALLERY = "auto_gallery/index"

project = "lmtool"
author = copyright = "The lmtool developers"
version = release = __version__
language = "en"
smartquotes_action = "D"  # dashes; quotes stay as they are typed

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
extensions += ["mathml", "docstrings", "command_pages", "forms_table", "option_pages", "repository_links"]
if WITH_GALLERY:
    extensions.append("sphinx_gallery.gen_gallery")

# The gallery's sources are scripts, and its generated pages use directives of sphinx-gallery.
exclude_patterns = ["_build", "_static", "_extensions", "examples", "gallery", "**/README.md"]
exclude_patterns += [] if WITH_GALLERY else ["auto_gallery"]

# MyST: Markdown. GitHub's anchors of headings, so that a link works there and here.
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist", "attrs_inline"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

# autodoc: types are shown beside the description of a parameter; the signature has names and defaults.
autodoc_typehints = "description"
autodoc_typehints_description_target = "all"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autoclass_content = "both"  # constructors document their arguments
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
python_display_short_literal_types = True
default_role = "code"  # docstrings write `code`
add_module_names = False
toc_object_entries_show_parents = "hide"

if WITH_GALLERY:
    from gallery_settings import SETTINGS as sphinx_gallery_conf  # noqa: F401 - how its scripts are run and shown

    suppress_warnings = ["config.cache"]  # these settings hold functions

html_theme = "furo"
html_title = f"lmtool {version}"
html_static_path = ["_static"]
html_css_files = ["lmtool.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

pygments_style = "default"
pygments_dark_style = "github-dark"


def without_gallery(app: Sphinx, page: str, source: list[str]) -> None:
    """Remove the gallery's card and its line of the contents from the first page if the gallery is not built."""
    if page == app.config.root_doc and not WITH_GALLERY:
        card = rf":::\{{grid-item-card\}} [^\n]*\n:link: {GALLERY}\n.*?\n:::\n\n"
        source[0] = re.sub(card, "", source[0], flags=re.DOTALL).replace(f"\n{GALLERY}\n", "\n")


def setup(app: Sphinx) -> None:
    """Connect to Sphinx, which calls this last."""
    app.connect("source-read", without_gallery)
