"""Training losses of the output layers as fused kernels in Triton, for CUDA devices; each beside the plain form that it
replaces, which is in lmtool.neural.outputs.

Triton is no dependency of lmtool: PyTorch's wheels for CUDA bring it, and without it the plain forms do the work. This
package imports it only when a layer whose tensors it can serve asks for a loss. What there is:

    lists      sums over a list of rows for each example: the paths of a tree, the noise words of an example (NCE)
    classes    a softmax over the rows of the class of each target (two softmaxes)
    columns    sums over rows that all examples share: shared noise (NCE), samples, all words, a head and its tails

Every kernel sums in float32 and takes float32 and bf16.

The floor. A layer can be no faster than the fewest bytes that it must move, at about 4.3 TB/s of an H200 for what
comes from its memory, and about 3 us for each of some three launches. Per example, with D numbers of s bytes:

    tree        2 D s of h and its gradient; for each node on the path D s of its vector for the score, as many for the
                gradient of h, and 4 D to add to: with 10 nodes, D = 100 and s = 4, 13 kB or 3 ns. The plain form writes
                the gathered vectors, their products with h and each pair's gradient to memory and reads them again. The
                vectors of 10,000 nodes (4 MB) stay in an L2 of 50 MB: launches bound batches below a thousand examples.
    own noise   the same with k + 1 rows in place of the nodes.
    shared      2 D s, and the k rows once per 64 examples. The plain form also writes and reads k scores, their losses
                and gradients: 12 k bytes and more.
    classes     as a tree, with the words of the class in place of the nodes, and shared for the classes.
    full        2 D s, and O D s per 64 examples from L2. The plain form moves 4 O bytes about ten times; this one none,
                for 10 O D operations in place of 6 O D. At O = 10,000 and D = 100 the plain form's 400 kB are 93 ns,
                and the 4 million operations to do again 27 ns at 150 TFLOP/s, a third of what tf32 reaches. With D
                above COLUMN_LIMITS the scores are computed again for each part of a row, 14 O D operations and more:
                there a layer keeps to the plain form.
"""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec

import torch
from torch import Tensor

WIDEST = 4096  # numbers of a row that one program holds
# Numbers of a row of a gradient that one program of `columns` sums, by whether its products are in bf16. Compiled for
# capability 9.0 twice as many spill registers.
COLUMN_WIDTHS = {False: 128, True: 256}
COLUMN_LIMITS = dict(COLUMN_WIDTHS)  # the largest D that a layer gives to `columns`: by counting, not yet measured
DTYPES = (torch.float32, torch.bfloat16)
SWITCH = "LMTOOL_TRITON"  # 1: use the fused kernels on CUDA, where nobody has run them yet; 0: in no case


def serves(*tensors: Tensor) -> bool:
    """Whether the fused kernels can work on a hidden and weights `[..., D]`.

    They must be in float32 or bf16, D at most WIDEST, on a CUDA device of capability 8.0 or later where triton is
    installed and LMTOOL_TRITON=1 asks for them; or on the CPU under TRITON_INTERPRET=1, which is for tests.
    """
    hidden = tensors[0]
    on_cpu = hidden.device.type == "cpu"
    if os.environ.get("TRITON_INTERPRET" if on_cpu else SWITCH) != "1":  # all that a step on a CPU asks
        return False
    if os.environ.get(SWITCH) == "0" or not _installed():
        return False
    if any(tensor.dtype not in DTYPES or tensor.shape[-1] > WIDEST for tensor in tensors):
        return False
    return on_cpu or (hidden.device.type == "cuda" and _capable(hidden.device.index or 0))


def serves_columns(*tensors: Tensor, narrow: bool = False) -> bool:
    """serves, and whether D is small enough for the kernels of `columns` to gain; narrow: by products in bf16."""
    in_bf16 = narrow or all(tensor.dtype == torch.bfloat16 for tensor in tensors)
    return tensors[0].shape[-1] <= COLUMN_LIMITS[in_bf16] and serves(*tensors)


@functools.cache
def _installed() -> bool:
    return find_spec("triton") is not None


@functools.cache
def _capable(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
