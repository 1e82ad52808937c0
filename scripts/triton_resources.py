"""What the kernels of lmtool.neural.triton take of a GPU, compiled here for one that need not be there.

python scripts/triton_resources.py [--lower] [CAPABILITY ...]: registers of a thread, numbers spilled from them, shared
memory, and which instructions do the work, for capabilities 80 (A100) and 90 (H100, H200). --lower: only to Triton's
own form, which is fast and says whether the kernels are in its language. Needs the package triton, without
TRITON_INTERPRET.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from lmtool.neural.triton import class_kernels, column_kernels, columns, launching, list_kernels

PROGRAMS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INTEGERS = ("words", "offsets", "order", "starts", "targets", "classes", "members")
SCALARS = ("most", "size", "columns", "span")
COUNTED = ("HGMMA", "HMMA", "RED", "ATOM", "LDL", "STL")  # matrix units, atomic additions, spilled numbers


def cases(narrow: bool, dim: int) -> Iterator[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """Every kernel with the constants that a layer gives it, and the options of its launch."""
    rows = launching.row_blocks(dim, 16)
    options = {"num_warps": rows.pop("num_warps")}
    no_noise = {"shift": None, "terms": None, "grad_terms": None}
    yield list_kernels.losses, rows | no_noise | {"places": None}, options
    yield list_kernels.losses, rows | {"words": None, "offsets": None, "bits": None}, options  # own noise
    yield list_kernels.gradients, rows | no_noise, options
    yield list_kernels.gradients, rows | no_noise | {"grad_weight": None, "grad_bias": None}, options
    yield list_kernels.segment_sums, rows, options
    yield class_kernels.losses, rows, options
    yield class_kernels.gradients, rows, options
    for softplus in (False, True):
        tiles = columns.tile_blocks(dim, narrow, softplus)
        options = {name: tiles.pop(name) for name in ("num_warps", "num_stages")}
        wide = tiles | {"BLOCK_D": columns.gradient_width(dim, narrow)}
        none = {"terms": None} if not softplus else {"targets": None}
        grad_none = none | ({} if softplus else {"grad_terms": None})
        yield column_kernels.sums, tiles | none | ({"chosen": None} if softplus else {}), options
        yield column_kernels.hidden_gradients, wide | grad_none, options
        yield column_kernels.weight_gradients, wide | none, options


def source(kernel: Any, constants: dict[str, Any], number: str) -> Any:
    """A kernel with the types that its arguments have, `number` those of weights and hidden."""
    signature, kept = {}, {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name], kept[name] = "constexpr", constants[name]
        elif name in SCALARS:
            signature[name] = "i32"
        elif name in INTEGERS or (name == "rows" and constants.get("words", 0) is None):
            signature[name] = "*i64"
        else:
            own = {"bits": "*u8", "rows": "*i32", "places": "*i32"} | dict.fromkeys(
                ("hidden", "weight", "bias"), number
            )
            signature[name] = own.get(name, "*fp32")
    aligned = {
        (at,): [["tt.divisibility", 16]] for at, name in enumerate(kernel.arg_names) if signature[name][0] == "*"
    }
    return ASTSource(kernel, signature, kept, aligned)


def lower(given: Any, target: Any, options: dict[str, Any]) -> None:
    """To Triton's own form, as the first step of triton.compile."""
    from triton._C.libtriton import ir

    backend = make_backend(target)
    parsed, context = backend.parse_options(options), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    given.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)


def resources(given: Any, target: Any, options: dict[str, Any]) -> str:
    """A line on what a kernel takes when it is compiled to the end."""
    compiled = triton.compile(given, target=target, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([PROGRAMS / "cuobjdump", form, file.name], capture_output=True, text=True, check=True).stdout
            for form in ("--dump-resource-usage", "--dump-sass")
        )
    fields = dict(field.split(":")[:2] for field in usage.split() if field.count(":") == 1 and field[-1] != ":")
    found = {name: len(re.findall(rf"\b{name}G?\b", code)) for name in COUNTED}  # REDG: in global memory
    counts = ", ".join(f"{count} {name}" for name, count in found.items() if count)
    shared = compiled.metadata.shared / 1024
    return f"{fields['REG']:>4} registers {fields['STACK']:>4} B spilled {shared:>5.0f} KiB shared  {counts}"


def main() -> None:
    only_lower = "--lower" in sys.argv
    capabilities = [int(word) for word in sys.argv[1:] if word.isdigit()] or ([90] if only_lower else [80, 90])
    for capability in capabilities:
        target = GPUTarget("cuda", capability, 32)
        for number, dim in (("*fp32", 100),) if only_lower else (("*fp32", 100), ("*fp32", 500), ("*bf16", 500)):
            for kernel, constants, options in cases(number == "*bf16", dim):
                options = options | {"enable_fp_fusion": True}
                name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"
                given = source(kernel, constants, number)
                what = lower(given, target, options) if only_lower else resources(given, target, options)
                print(f"{name:<34} sm_{capability} {number[1:]} D={dim:<5}{what or 'lowered'}", flush=True)


if __name__ == "__main__":
    main()
