"""How sphinx-gallery runs and shows the examples of docs/gallery; in conf.py: `sphinx_gallery_conf = SETTINGS`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lmtool.plots.style import GRID, INK, LIGHT, MUTED, SERIES

# On white in both of the site's styles: a picture has one set of colors, with a contrast of 4.5 or more to it.
LOOK: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": LIGHT["page"],
    "font.size": 9,
    "grid.color": GRID,
    "legend.frameon": False,
    "lines.markersize": 4.5,
    "savefig.facecolor": LIGHT["page"],
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}
COLOURS = 48  # of a picture's palette: lines and text need few, and it takes a third of the bytes


def look(gallery_conf: object, example: object) -> None:
    """Give the pictures of an example their colors and sizes, whatever the one before has set."""
    import matplotlib
    from matplotlib import cycler

    matplotlib.rcParams.update(LOOK | {"axes.prop_cycle": cycler(color=SERIES)})


def without_runs(gallery_conf: dict[str, Any], example: object) -> None:
    """Remove the run folders that an example left beside it; the stores stay, and serve the next one."""
    for name in ("outputs", "multirun"):
        shutil.rmtree(Path(gallery_conf["src_dir"]) / "gallery" / name, ignore_errors=True)


def pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Write the figures of a cell as PNG files with a palette, in two sizes; their titles are their alt texts."""
    from PIL import Image
    from sphinx_gallery.scrapers import matplotlib_scraper

    before = len(block_vars["image_path_iterator"])
    rst: str = matplotlib_scraper(block, block_vars, gallery_conf)
    for path in map(Path, block_vars["image_path_iterator"].paths[before:]):
        for picture in path.parent.glob(f"{path.stem}*.png"):
            with Image.open(picture) as full:
                small = full.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            small.save(picture, optimize=True)
    return rst


# Functions are named, not given: Sphinx keeps its settings in a file.
SETTINGS: dict[str, Any] = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("gallery_settings.pictures",),
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib", "gallery_settings.look", "gallery_settings.without_runs"),
    "reset_modules_order": "both",
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1_000_000,  # times of a machine say nothing of the speed
    "write_computation_times": False,
    "download_all_examples": False,
    "notebook_images": False,
    "abort_on_example_error": True,
}
