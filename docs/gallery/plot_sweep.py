"""
A sweep as a plot
=================

``lmtool report`` draws a sweep: one setting as an axis, a second one as lines or, with three values or more, as a grid.
"""

# %%

import matplotlib.pyplot as plt

import lmtool

laplace = {"model": "ngram", "smoother": "laplace", "data": "pydoc"}
alphas = [0.001, 0.01, 0.1, 1.0, 10.0]
lines = lmtool.sweep({"smoother.alpha": alphas, "model.order": [1, 2]}, out="lines", **laplace)
grid = lmtool.sweep({"smoother.alpha": alphas, "model.order": [1, 2, 3, 4]}, out="grid", **laplace)
lmtool.report_page([lines.folder, grid.folder], out="page")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.4), layout="constrained")
for axes, name in ((left, "lines"), (right, "grid")):
    axes.imshow(plt.imread(f"page/sweep-{name}.png"))
    axes.set(title=f"The picture sweep-{name}.png of the report")
    axes.axis("off")
plt.show()

# %%
# The best alpha falls as the order grows.
