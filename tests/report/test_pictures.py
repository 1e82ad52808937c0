"""What pictures are made from: positions, ticks, intervals, colors, labels, ids."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import re
from pathlib import Path

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.evaluation.significance import perplexity_interval
from lmtool.plots.charts import Dot, charts_of, dots_figure, lines_figure, settings_figure, settings_text
from lmtool.plots.curves import History, read_history, training_curves
from lmtool.plots.style import DARK, LIGHT, as_svg, new_figure, number_axis, perplexity_text, top_of
from lmtool.plots.word_pictures import label_corners, map_figure
from lmtool.report.maps import pca, tsne

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
LINE = '{"epoch": %s, "train_loss": 1.0, "valid_perplexity": %s, "lr": 0.1, "valid_accuracy": null}\n'

# numbers


def test_the_interval_of_a_known_sample() -> None:
    # Sentences that are alike leave nothing to chance; the weight of a sentence is its length.
    offsets = np.array([0, 2, 3]) + 3 * np.arange(5)[:, None]
    offsets = np.unique(offsets)
    same = perplexity_interval(np.log([0.5, 0.125, 0.25] * 5), offsets, resamples=100, seed=1)
    assert same == pytest.approx((4, 4))
    assert perplexity_interval(np.array([-1.0, -np.inf] * 5), np.arange(11), resamples=100, seed=1) is None


def test_the_interval_is_that_of_the_normal_distribution() -> None:
    # -log p of mean 3 and standard deviation 1 over 2,500 sentences: the mean's own is 1/50.
    rng = np.random.default_rng(1)
    scores = rng.standard_normal(2500)
    scores = -3 - (scores - scores.mean()) / scores.std()
    low, high = np.log(perplexity_interval(scores, np.arange(2501), resamples=4000, seed=2))
    assert low == pytest.approx(3 - 1.96 / 50, abs=0.002) and high == pytest.approx(3 + 1.96 / 50, abs=0.002)


def test_pca_of_known_points() -> None:
    # Along (3, 4)/5 the coordinates are -10, 0, 10, along (-4, 3)/5 they are 1, -2, 1: variances as 200 to 6.
    along, across = np.array([3, 4]) / 5, np.array([-4, 3]) / 5
    points = np.array([7, 9]) + np.outer([-10, 0, 10], along) + np.outer([1, -2, 1], across)
    found, shares = pca(points)
    np.testing.assert_allclose(
        found, [[-10, -1], [0, 2], [10, -1]], atol=1e-12
    )  # -across: its largest entry is above 0
    assert shares == pytest.approx((200 / 206, 6 / 206))


def test_pca_of_few_dimensions() -> None:
    found, shares = pca(np.array([[1.0], [3.0]]))
    assert found.tolist() == [[-1, 0], [1, 0]] and shares == (1, 0)
    found, shares = pca(np.ones((3, 4)))
    assert not found.any() and shares == (0, 0)


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn")
def test_tsne_keeps_groups_together() -> None:
    rng = np.random.default_rng(1)
    vectors = np.concatenate([rng.normal(0, 0.1, (12, 5)), rng.normal(5, 0.1, (12, 5))])
    found = tsne(vectors, seed=1)
    np.testing.assert_array_equal(found, tsne(vectors, seed=1))
    middles = found[:12].mean(0), found[12:].mean(0)
    apart = np.linalg.norm(middles[0] - middles[1])
    assert max(np.linalg.norm(found[:12] - middles[0], axis=1)) < apart / 2


def test_tsne_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.manifold", None)
    with pytest.raises(UserError, match=r'^map=tsne needs scikit-learn: pip install "lmtool\[plots\]"$'):
        tsne(np.ones((5, 2)), seed=1)


@needs_matplotlib
def test_marks_of_an_axis() -> None:
    def ticks(low: float, high: float) -> list[str]:
        with new_figure(4, 4, ()) as figure:
            axes = figure.add_subplot()
            assert number_axis(axes, "y", [low, high], log_ratio=1) and not axes.get_yticks(minor=True).size
        low, high = axes.get_ylim()
        return [text.get_text() for text in axes.get_yticklabels() if low <= text.get_position()[1] <= high]

    assert ticks(0.0001, 10) == ["0.0001", "0.001", "0.01", "0.1", "1", "10"]
    assert ticks(140, 700) == ["150", "200", "300", "400", "500", "700"]
    assert ticks(100, 1200) == ["100", "200", "500", "1,000"]
    shown = [perplexity_text(value) for value in (3.8e17, 1234.5, 148.007, 3.21)]
    assert shown == ["3.8e+17", "1,234", "148.0", "3.210"]


def test_one_absurd_value_does_not_flatten_the_rest() -> None:
    assert top_of([4.0, 20.0, 6.0, 1e17]) == 20 and top_of([4.0, 1000.0, 20.0]) == 1000 and top_of([-3.0, -2.0]) == -2


@needs_matplotlib
def test_axes_of_what_is_far_apart_are_logarithmic() -> None:
    histories = [("good", History([1.0, 2.0], [], [20.0, 10.0], [], [], []))]
    histories += [("absurd", History([1.0, 2.0], [], [1e17, 40.0], [], [], []))]
    named = {name: {epoch: [v] for epoch, v in zip(h.epochs, h.valid, strict=True)} for name, h in histories}
    figure = lines_figure(named, "perplexity on valid", "epochs")
    (axes,) = figure.axes
    assert axes.get_yscale() == "log" and axes.get_ylim()[0] < 10 and 40 < axes.get_ylim()[1] < 100
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["good  10.0", "absurd  40.0"]
    assert figure.legends[0].get_title().get_text() == "lowest of each line:"
    *_, ring = axes.get_lines()
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (2, 10)
    assert figure.get_suptitle() == "lowest: 10.0 (ring)"
    (axes,) = dots_figure([Dot("a", 10.0, "10"), Dot("b", 31.0, "31")], "perplexity").axes
    assert axes.get_xscale() == "log"
    (axes,) = dots_figure([Dot("a", 10.0, "10"), Dot("b", 29.0, "29")], "perplexity").axes
    assert axes.get_xscale() == "linear"
    (chart,) = charts_of([({"lr": lr}, value) for lr, value in zip("1234", [9, 8, 12, 1e9], strict=True)])
    (axes,) = settings_figure(chart, "p").axes
    assert axes.get_ylim()[1] < 13 and "\N{UPWARDS ARROW} 1e+09" in [text.get_text() for text in axes.texts]


@needs_matplotlib
def test_learning_rates_are_drawn_at_their_evaluations(tmp_path: Path) -> None:
    rates = [0.02, 0.1, 0.05]
    lines = [LINE % (epoch, 30 / epoch) for epoch in (0.5, 1, 1.5)]
    lines = [line.replace('"lr": 0.1', f'"lr": {rate}') for line, rate in zip(lines, rates, strict=True)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    (tmp_path / "learning_rates.csv").write_text("step,lr\n0,x\n")  # of an earlier version, and damaged
    (_, axes) = training_curves(read_history(tmp_path / "metrics.jsonl", True)).axes
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [0.5, 1, 1.5] and list(line.get_ydata()) == rates
    assert axes.get_ylabel() == "learning rate"


@needs_matplotlib
@pytest.mark.parametrize(("last", "scale"), [(0.8, "log"), (0.9, "linear")])
def test_cloze_perplexities_and_losses_of_steps_have_panels(last: float, scale: str) -> None:
    steps = [float(step) for step in range(1, 5001)]
    losses = [9.0 - (9.0 - last) * step / 5000 for step in steps]
    history = History([1.0, 2.0], [], [20.0, 10.0], [], [], [0.1, 0.2], [3.0, 2.5], steps, losses)
    axes = {each.get_ylabel(): each for each in training_curves(history).axes}
    assert axes.keys() == {"perplexity", "cloze perplexity", "learning rate", "training loss (nats)"}
    assert list(axes["cloze perplexity"].get_lines()[0].get_ydata()) == [3.0, 2.5]
    loss = axes["training loss (nats)"]
    (line,) = loss.get_lines()
    assert loss.get_yscale() == scale and line.get_xdata()[1] == 4.0 and len(line.get_xdata()) == 1667


@needs_matplotlib
def test_fonts_are_listed_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    logging.getLogger("matplotlib.font_manager").info("generated new fontManager")
    assert not caplog.messages


def test_thinned_labels_do_not_overlap() -> None:
    rng = np.random.default_rng(1)
    dots = rng.normal(100, 30, (300, 2))
    sizes = np.column_stack([rng.uniform(5, 40, 300), np.full(300, 9.0)])
    area = (20.0, 20.0, 180.0, 180.0)
    places = label_corners(dots, sizes, area)
    boxes = [np.concatenate([at, at + size]) for at, size in zip(places, sizes, strict=True) if at is not None]
    assert 20 < len(boxes) < 200
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    assert all(box[0] >= 20 and box[1] >= 20 and box[2] <= 180 and box[3] <= 180 for box in boxes)
    inside = [((dot >= box[:2]) & (dot <= box[2:])).all() for dot in dots for box in boxes]
    assert not any(inside)


def test_labels_take_the_first_free_side() -> None:
    one, size, area = np.array([[50.0, 50.0]]), np.array([[20.0, 6.0]]), (0.0, 0.0, 100.0, 100.0)
    assert [place.tolist() for place in label_corners(one, size, area)] == [[53.5, 47]]
    near = np.array([[50.0, 50.0], [60.0, 50.0], [60.0, 50.0]])
    first, second, third = label_corners(near, np.repeat(size, 3, 0), area)
    assert first is not None and first.tolist() == [26.5, 47]  # at its right stands a dot
    assert second is not None and second.tolist() == [63.5, 47]
    assert third is not None and third.tolist() == [50, 53.5]


# how sweeps are drawn


def jobs(**values: list[str]) -> list[tuple[dict[str, str], float]]:
    return [(dict(zip(values, each, strict=True)), 1.0) for each in itertools.product(*values.values())]


def drawn(**values: list[str]) -> list[tuple[str, str, list[str]]]:
    return [(chart.kind, chart.x, list(chart.by)) for chart in charts_of(jobs(**values))]


def test_the_settings_say_how_they_are_drawn() -> None:
    orders, names, dots = ["1", "2", "3"], ["mle", "laplace"], ("dots", "", [])
    assert drawn(alpha=["1e-3", "1", "1e3"]) == [("lines", "alpha", [])]
    assert drawn(alpha=["0.1", "1"], seed=["1", "2"]) == [("lines", "alpha", [])]
    assert drawn(smoother=names) == drawn(alpha=["1", "tuned"]) == [dots]
    assert drawn(order=orders, smoother=names) == [("lines", "order", ["smoother"])]
    assert drawn(order=["2", "3"], alpha=["1", "2", "4"]) == [("lines", "alpha", ["order"])]
    assert drawn(order=["2", "3"], alpha=["1", "2"]) == [("grid", "order", ["alpha"])]
    assert drawn(order=orders, alpha=["1", "2", "4", "8"], seed=["1", "2"]) == [("grid", "alpha", ["order"])]
    assert drawn(order=["2", "3"], smoother=list("abcdefg")) == [("grid", "order", ["smoother"])]  # too many for lines
    assert drawn(a=orders, b=["1", "2"], c=names) == [("lines", "a", ["b", "c"])]
    assert drawn(a=list("xyz"), b=names, c=names) == [dots]
    assert drawn(a=["1", "2", "3", "4"], b=orders, c=list("xyz")) == [("grid", "a", ["b"]), dots]
    sparse = [({"a": str(k), "b": str(k)}, 1.0) for k in range(20)]  # as of a search
    assert [chart.kind for chart in charts_of(sparse)] == ["dots"]


def test_a_grid_of_the_best_two_settings_says_which_others_are_fixed() -> None:
    every = [
        (settings, 9.0 - (settings["c"] == "y"))
        for settings, _ in jobs(a=["1", "2", "3"], b=["1", "2", "3"], c=list("xyz"))
    ]
    grid, dots = charts_of(every)
    assert len(grid.jobs) == 9 and {settings["c"] for settings, _ in grid.jobs} == {"y"}
    assert (dots.kind, len(dots.jobs)) == ("dots", 27)
    if importlib.util.find_spec("matplotlib"):
        title = settings_figure(grid, "p", shared="data=toy").get_suptitle()
        assert title == "data=toy\nc=y\np; the lowest is framed"


@needs_matplotlib
def test_a_grid_has_the_mean_of_each_cell_and_frames_the_lowest() -> None:
    values = {
        ("0.1", "2"): 4.0,
        ("0.1", "10"): 3.0,
        ("1", "2"): 9.0,
        ("1", "10"): 5.0,
        ("10", "2"): 1e5,
        ("10", "3"): 6.0,
        ("0.1", "3"): 7.0,
    }
    cells = [
        ({"alpha": a, "order": b, "seed": k}, value - 1 + 2 * k) for (a, b), value in values.items() for k in (0, 1)
    ]
    (chart,) = charts_of(cells)
    (axes,) = settings_figure(chart, "perplexity on valid").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "1", "10"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("alpha", "order")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2", "3", "10"]  # in the order of numbers
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts == {
        (0, 0): "4.000",
        (0, 2): "3.000",
        (1, 0): "9.000",
        (1, 2): "5.000",
        (2, 0): "100,000",
        (2, 1): "6.000",
        (0, 1): "7.000",
    }
    (frame,) = [patch for patch in axes.patches if not patch.get_fill()]
    assert frame.get_xy() == (-0.5, 1.5)
    filled = {patch.get_xy(): patch.get_alpha() for patch in axes.patches if patch.get_fill()}
    assert filled[-0.5, 1.5] == max(filled.values()) and filled[1.5, -0.5] == min(filled.values())
    assert filled[0.5, 1.5] == pytest.approx(0.04 + 0.46 * math.log(9 / 5) / math.log(9 / 3))  # 1e5 does not flatten


@needs_matplotlib
@pytest.mark.parametrize(
    ("values", "log"),
    [
        *((".1 1 10 100", True), ("1 2 4 8", True), ("1e-4 1e-3 1e-2 1e-1", True), ("1 2 5 10 20", True)),
        *(("1e-3 1e3", False), ("5 10 20", True), ("2 3 4 5", False), ("1 2 3 5", False), ("0 1 10 100", False)),
        *(("0.01 0.25 0.5 0.75 1", False), (" ".join(map(str, range(1, 41))), False), ("-1 1 10", False)),
    ],
)
def test_settings_whose_ratios_are_alike_have_a_log_axis(values: str, log: bool) -> None:
    (chart,) = charts_of([({"x": value}, float(k)) for k, value in enumerate(values.split(), start=1)])
    (axes,) = settings_figure(chart, "p").axes
    assert axes.get_xscale() == ("log" if log else "linear")
    if log:
        assert list(axes.get_xticks()) == list(map(float, values.split()))


@needs_matplotlib
def test_the_name_of_a_line_says_of_what_a_number_is() -> None:
    cells = [({"smoother.alpha": a, "model.order": b, "to": c}, 2.5) for a in "148" for b in "23" for c in ("p", "q")]
    texts = settings_figure(charts_of(cells)[0], "p").legends[0].get_texts()
    assert [text.get_text() for text in texts] == [f"order {b}, {c}  2.500" for b in "23" for c in ("p", "q")]
    cells = [({"order": a, "alpha": b, "smoother": c}, 2.5) for a in "123" for b, c in (("2", "laplace"), ("", "mle"))]
    texts = settings_figure(charts_of(cells)[0], "p").legends[0].get_texts()  # mle has no alpha
    assert [text.get_text() for text in texts] == ["alpha 2, laplace  2.500", "mle  2.500"]


@needs_matplotlib
def test_perplexities_on_train_are_dashed_lines() -> None:
    valid = [({"order": str(n), "smoother": name}, 10.0 * n) for n in (1, 2, 3) for name in ("a", "b")]
    train = [(settings, value / 2) for settings, value in valid if settings["smoother"] == "b"]
    train.append(({"order": "all", "smoother": "b"}, 1.0))  # of a job whose perplexity on valid is infinite
    (axes,) = settings_figure(charts_of(valid)[0], "perplexity on valid", train).axes
    first, second, dashed, _ = axes.get_lines()
    assert axes.get_ylabel() == "perplexity on valid (solid), train (dashed)"
    assert list(dashed.get_ydata()) == [5, 10, 15] and dashed.get_linestyle() == "--"
    assert dashed.get_color() == second.get_color() != first.get_color()


@needs_matplotlib
def test_long_names_are_below_and_others_are_counted() -> None:
    names = [f"embedding_dim=16, hidden_dim=32, seed={k}" for k in range(9)]
    named = {name: {epoch: [10.0 + epoch] for epoch in (0.5, 3.0, 5.5)} for name in names}
    figure = lines_figure(named, "perplexity on valid", "epochs", "data=toy")
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [*(f"{name}  10.5" for name in names[:6]), "and 3 others"]
    (axes,) = figure.axes
    assert figure.legends[0].get_window_extent().y1 < axes.get_window_extent().y0
    assert axes.get_window_extent().width > 0.8 * figure.bbox.width
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_settings_are_named_without_their_groups_unless_these_differ() -> None:
    assert settings_text({"model.hidden_dim": 32, "seed": 1, "size": ""}) == "hidden_dim=32, seed=1"
    assert settings_text({"model.order": 3, "smoother.order": 2}) == "model.order=3, smoother.order=2"


@needs_matplotlib
def test_the_ring_of_a_training_is_named() -> None:
    history = History([1.0, 2.0, 8.0], [40.0] * 3, [30.0, 20.0, 25.0], [], [], [], [3.0, 4.0, 5.0], kept="cloze")
    figure = training_curves(history, "data=toy")
    axes = figure.axes[0]
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["kept weights: 30.0", "train, while training", "valid"]
    assert figure.get_suptitle() == "data=toy" and all(tick == int(tick) for tick in axes.get_xticks())


@needs_matplotlib
def test_dots_have_their_numbers() -> None:
    (chart,) = charts_of([({"a": a}, value) for a, value in [("p", 3.0), ("q", 2.0)]])
    text = as_svg(settings_figure(chart, "loss"), "dots", "")
    assert text.index(">a=q</text>") < text.index(">a=p</text>") and ">2.000</text>" in text


# metrics.jsonl


def test_a_history(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(LINE % (0.5, 30.0) + LINE % (1, 20.0) + LINE % (1.5, 25.0))
    found = read_history(file, True)
    assert found.epochs == [0.5, 1, 1.5] and found.valid == [30, 20, 25] and found.best == 1
    assert found.train == pytest.approx([np.e] * 3) and found.valid_accuracy == []
    assert found.rates == [0.1] * 3
    assert read_history(file, False).train == []  # the loss is not -log p


def test_logged_steps_and_cloze_questions_of_a_history(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = ['{"epoch": 0.5, "step": 10, "loss": 4.5, "lr": 0.2}\n', LINE % (0.5, 30.0)]
    lines += ['{"epoch": 0.6, "step": 12, "loss": 4.0, "lr": 0.2}\n', LINE % (1, 20.0)]
    file.write_text("".join(lines).replace('"lr": 0.1', '"lr": 0.1, "cloze_perplexity": 3.5'))
    found = read_history(file, True)
    assert (found.steps, found.losses) == ([10, 12], [4.5, 4.0])
    assert (found.epochs, found.valid, found.cloze, found.rates) == ([0.5, 1], [30, 20], [3.5, 3.5], [0.1, 0.1])
    assert (found.best, read_history(file, True, "cloze").best) == (1, 0)  # whose weights were kept


def test_metrics_without_learning_rates(tmp_path: Path) -> None:
    """As in a line of metrics that another program wrote."""
    file = tmp_path / "metrics.jsonl"
    file.write_text((LINE % (0.5, 30.0) + LINE % (1, 20.0)).replace('"lr": 0.1, ', ""))
    found = read_history(file, True)
    assert found.rates == [] and found.valid == [30, 20]


# colors and SVG


def luminance(color: str) -> float:
    """WCAG 2's relative luminance."""
    shares = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(style: dict[str, str]) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for name in ("ink", "muted", *(f"series{k}" for k in range(1, 7))):
        assert contrast(style[name], style["page"]) >= 4.5, name


def test_colors_have_names_of_their_own() -> None:
    assert LIGHT.keys() == DARK.keys() and len(set(LIGHT.values())) == len(LIGHT)


@needs_matplotlib
def test_an_svg_is_the_pages_own() -> None:
    with new_figure(2, 2, ()) as figure:
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], marker="o", color=LIGHT["series1"])
        axes.set_title('$x_1$ <b>&"#1f5fa8" url(#a) id="b"', parse_math=None)
    one, other = as_svg(figure, "one", 'a "b" <c>'), as_svg(figure, "two", "")
    assert (
        one.startswith('<svg viewBox="0 0 144 144" style="--natural:192px"')
        and 'aria-label="a &quot;b&quot; &lt;c&gt;"' in one
    )
    assert "http" not in one and "<style" not in one and "xmlns" not in one
    assert '$x_1$ &lt;b&gt;&amp;"#1f5fa8" url(#a) id="b"</text>' in one  # texts stay as they are
    assert not re.search(r'="[^"]*#[0-9a-f]{6}', one) and "var(--series1)" in one and "var(--ink)" in one
    ids = re.findall(r' id="([^"]+)"', re.sub(r"<text.*?</text>", "", one, flags=re.S))
    assert ids and as_svg(figure, "one", 'a "b" <c>') == one
    assert not set(ids) & set(re.findall(r' id="([^"]+)"', other))


@needs_matplotlib
def test_a_map_names_what_it_can() -> None:
    points = np.concatenate([np.zeros((30, 2)), [[1.0, 1.0], [-1.0, 1.0]]])
    figure = map_figure(points, [f"word{k}" for k in range(30)] + ["$a$", "語"], ("first", "second"))
    svg = as_svg(figure, "map", "")
    assert "$a$" in svg and "語" in svg and "first" in svg
    assert len(re.findall("word", svg)) == 2  # one at each side of thirty dots on one place


@needs_matplotlib
@pytest.mark.parametrize("value", [1e308, math.inf, -1e308])
def test_an_axis_of_any_number(value: float) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    number_axis(axes, "y", [1.0, value], log_ratio=1)
    assert np.isfinite(axes.get_ylim()).all()
