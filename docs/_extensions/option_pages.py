"""A page for each option of lmtool, written below docs/mathematics/generated when Sphinx starts.

A page has the formula, the method's source, the settings, the complexity, and what the option gives on the Penn
Treebank; option_text says where each of them stands.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from option_text import (
    ROOT,
    Row,
    docstring,
    figures,
    file_of,
    kind_of,
    option_text,
    settings,
)

from lmtool.cli.help_pages import describe_options
from lmtool.config.options import GROUP_MODULES, conf_dir, kinds, settings_class, yaml_files
from lmtool.config.rules import MISSING
from lmtool.config.yaml_files import YamlFile

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GROUPS = {  # in the order of the site's contents
    "model": "Models",
    "smoother": "Smoothers",
    "counts": "Ways of counting",
    "output": "Output layers",
    "tree": "Trees",
    "optim": "Optimizers",
    "schedule": "Learning-rate schedules",
    "data": "Data",
    "segmenter": "Segmenters",
    "tracker": "Experiment trackers",
}
CONTRACTS = {"Tree", "OutputLayer", "Encoder"}  # what options build, as opposed to what one option is
MATH = re.compile(r"^\.\. math::\n\n((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
INLINE_MATH = re.compile(r":math:`([^`]+)`")
MARKED = re.compile(r"(`[^`]*`|\$[^$]*\$)")  # literals and formulas
SYMBOLS = re.compile(r"\b(?P<name>[A-Za-z])_(?P<index>\w+)\b|(?<!\w)(?P<function>[acdgmpCS]\((?:w\|h'?|v?hw|w)\))")
ORDER = re.compile(r"\bO\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\blog2 [A-Z]\b")


def markdown(rest: str) -> str:
    """reST as docstrings have it - paragraphs, displayed and inline formulas, literals - as MyST Markdown."""
    blocks: list[str] = []

    def keep(match: re.Match[str]) -> str:
        blocks.append("```{math}\n" + textwrap.dedent(match[1]).strip() + "\n```\n")
        return f"\0{len(blocks) - 1}\0\n"

    text = MATH.sub(keep, rest + "\n")
    text = INLINE_MATH.sub(lambda match: "$" + " ".join(match[1].split()) + "$", text)
    text = "".join(part if part[:1] in ("`", "$") else _unmarked(part) for part in MARKED.split(text))
    text = re.sub("\0(\\d+)\0\n?", lambda match: blocks[int(match[1])], text)
    return text.strip() + "\n"


def _unmarked(text: str) -> str:
    """Prose of a docstring, its symbols such as n_r, p(w|h) and O(n log V) as formulas, and no tags."""
    text = ORDER.sub(_order, text).replace("<", r"\<")
    parts = MARKED.split(text)
    return "".join(part if part.startswith("$") else SYMBOLS.sub(_symbol, part) for part in parts)


def _symbol(match: re.Match[str]) -> str:
    return f"${match['function']}$" if match["function"] else f"${match['name']}_{{{match['index']}}}$"


def _order(match: re.Match[str]) -> str:
    """Return the order of a number of steps, as a formula if it has no words."""
    if set(re.findall(r"[A-Za-z]{2,}", match[0])) - {"log", "layers"}:
        return match[0]
    latex = match[0].replace("layers", r"\text{layers}").replace("log2", r"\log_2")
    latex = re.sub(r"(?<!\\)\blog\b", r"\\log", latex)
    latex = re.sub(r"(?<=[A-Za-z0-9)]) (?=[A-Za-z(])", r"\\,", latex)
    return f"${latex}$"


def plain(text: str, *, cell: bool = False) -> str:
    """Return a comment of a YAML file, with no markup but `code`, as Markdown. cell: whether it is in a table."""
    parts = re.split(r"(`[^`]*`)", text)
    text = "".join(part if part.startswith("`") else re.sub(r"([<*\[\]$_])", r"\\\1", part) for part in parts)
    return text.replace("|", r"\|") if cell else text


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _settings_table(group: str, rows: list[Row]) -> str:
    cells = [
        [
            _code(f"{group}.{row.name}"),
            "to be given" if row.value == MISSING else _code(row.value.replace("|", r"\|")),
            plain(row.meaning, cell=True),
            plain(row.values, cell=True),
        ]
        for row in rows
    ]
    return table(["setting", "default", "what it does", "values"], cells)


def _chosen(page: YamlFile) -> str:
    """Return the groups of a defaults list, with links to the pages of the chosen options."""
    linked = [f"[`{g}={o}`](../{g}/{o}.md)" for g, o in page.groups.items() if g in GROUPS]
    return f"Comes with {', '.join(linked)}, unless the command line says otherwise.\n" if linked else ""


def _measured(group: str, name: str) -> list[str]:
    measured = figures(group, name)
    if not measured.rows:
        return []
    noted = any(row.note for row in measured.rows)
    heads = ["perplexity", "with", *(["what to know"] if noted else [])]
    cells = [
        [row.perplexity, _code(row.command or row.settings), *([plain(row.note, cell=True)] if noted else [])]
        for row in measured.rows
    ]
    said = f"Perplexity of the valid split; lower is better. Printed by {plain(measured.by)}. {plain(measured.note)}"
    shared = f"```sh\n{measured.command}\n```\n"
    return ["## On the Penn Treebank\n", shared, said.strip() + "\n", table(heads, cells)]


def _files(group: str, name: str, base: Path | None) -> str:
    """Return the place of the option in the source, and its public classes and functions in the site's reference."""
    sources = [path for path in (base, yaml_files(group)[name]) if path is not None]
    named = " and ".join(f"`{path.relative_to(ROOT)}`" for path in sources if path.is_relative_to(ROOT))
    public = [f"{{py:obj}}`{of}`" for of in _public(group, name)] if base is not None else []
    return (f"In Python: {', '.join(public)}. " if public else "") + (f"Files: {named}.\n" if named else "")


def _public(group: str, kind: str) -> list[str]:
    """Return the classes and functions of lmtool.neural and lmtool.trees that the settings class of an option names."""
    words = set(re.findall(r"\w*[A-Z_]\w*", inspect.getsource(settings_class(group, kind))))
    names: list[str] = []
    for package in ("lmtool.neural", "lmtool.trees"):
        names += [f"{package}.{name}" for name in sorted(words - CONTRACTS) if name in import_module(package).__all__]
    return names


def page(group: str, name: str) -> str:
    """Return the page of an option or preset, in MyST Markdown, without the parts that it does not have."""
    said = file_of(group, name, own=True)
    kind = kind_of(group, name)
    path = Path(inspect.getfile(settings_class(group, kind)))
    text = option_text(docstring(group, kind))
    parts = [f"# `{group}={name}`\n", plain(said.description) + "\n"]
    if said.title:
        parts.append(f"```sh\n{said.title}\n```\n")
    if said.aliases:
        parts.append(f"Elsewhere called: {plain(said.aliases)}. Here the name to type is `{name}`.\n")
    if said.bases:
        parts += [_preset(group, name, said)]
    else:
        parts += ["## Formula\n" if text.formulas else "", f"{markdown(text.title)}", markdown(text.body)]
        parts += ["## Published\n", markdown(text.source)] if text.source else []
        parts += ["## Complexity\n", markdown(text.complexity)] if text.complexity else []
    if not said.bases:
        rows = settings(group, name)
        parts += ["## Settings\n", _settings_table(group, rows)] if rows else []
        parts += [_chosen(said)]
    parts += [*_measured(group, name), "## In the source\n", _files(group, name, None if said.bases else path)]
    return "\n".join(part for part in parts if part)


def _preset(group: str, name: str, said: YamlFile) -> str:
    rows, base = settings(group, name, own=True), said.bases[0]
    differs = f"differs in these settings:\n\n{_settings_table(group, rows)}" if rows else "has the same settings."
    return (
        f"A preset: it starts from [`{group}={base}`]({base}.md), whose page has the formula, and {differs}\n"
        + _chosen(said)
    )


def group_page(group: str, names: list[str]) -> str:
    """Return the list of a group's options."""
    about, measured = describe_options(group), {name: figures(group, name) for name in names}
    compared = [of for of in measured.values() if of.compared is not None]
    rows = [[f"[`{name}`]({name}.md)", plain(about[name], cell=True)] for name in names]
    heads = [f"`{group}=`", "what it is"]
    lines = [f"# {GROUPS[group]}\n"]
    if compared:
        heads.append("perplexity")
        for row, of in zip(rows, measured.values(), strict=True):
            row.append(of.compared.perplexity if of.compared is not None else "")
        alike = {of.compared.settings for of in compared if of.compared is not None}
        where = f" with {_code(alike.pop())}" if len(alike) == 1 and alike != {""} else ""
        said = f"Perplexity: Penn Treebank, valid{where}; printed by {plain(compared[0].by)}. {plain(compared[0].note)}"
        lines.append(said.strip() + "\n")
    lines += [table(heads, rows), "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"]
    return "\n".join(lines)


def own_names(group: str) -> list[str]:
    """lmtool's own options and presets of a group: options first, then presets."""
    files = [name for name, path in yaml_files(group).items() if path.is_relative_to(conf_dir())]
    options = kinds(group)
    return sorted(files, key=lambda name: (name not in options, name))


def pages() -> dict[str, str]:
    """Return all pages, by their path below the folder of generated ones."""
    assert set(GROUPS) == set(GROUP_MODULES), "a new group needs a name here"
    made = {}
    for group in GROUPS:
        names = own_names(group)
        made[f"{group}/index.md"] = group_page(group, names)
        made |= {f"{group}/{name}.md": page(group, name) for name in names}
    return made


def write_pages(folder: Path) -> None:
    """Write the pages that have changed, and remove those of options that no longer exist."""
    wanted = {folder / path: text for path, text in pages().items()}
    for path in folder.rglob("*.md"):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # Sphinx reads again what is newer
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "mathematics" / "generated"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
