"""ONNX's own tests of nodes: run, compared, counted.

`python -m tests.onnx.node_tests` prints the share that passes and why the others do not; `--compile` compiles
every model instead of running its translation in eager, `--float32` leaves out cases of other floats and of
domains of their own, `--part 3/20` runs every twentieth case from the third on.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import metaschedule as ms
from metaschedule.onnx import tensors
from metaschedule.onnx.translate import Translator

PASSED, REFUSED, WRONG, RAISED = "passed", "refused", "wrong", "raised"
# ONNX's own expectations are of random draws.
FLOAT = onnx.TensorProto.FLOAT
OTHER_FLOATS = {
    number
    for name, number in onnx.TensorProto.DataType.items()
    if name.startswith(("FLOAT", "DOUBLE", "BFLOAT", "COMPLEX")) and number != FLOAT
}
RANDOM = ("bernoulli", "training_dropout")


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def is_float32(case: Any) -> bool:
    """Whether a case is of the standard domain, and all floats in it are float32."""
    graph = case.model.graph
    given = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    standard = all(node.domain in ("", "ai.onnx") for node in graph.node)
    return standard and FLOAT in given and given.isdisjoint(OTHER_FLOATS)


def run_case(case: Any, compiled: bool) -> tuple[str, str]:
    """The outcome of a case, and what to say of it."""
    inputs, expected = (list(map(as_given, part)) for part in case.data_sets[0])
    try:
        if compiled:
            found = ms.onnx.compile(case.model)(*inputs)
            results = list(found) if isinstance(found, tuple) else [found]
        else:
            model = ms.onnx.load(case.model)
            with torch.no_grad():
                outputs = Translator(model)(model.bind(inputs, {}))
            results = [as_arrays(output) for output in outputs]
    except ms.onnx.Unsupported as why:
        return REFUSED, str(why)
    except Exception as why:
        return RAISED, f"{type(why).__name__}: {why}"
    if any(word in case.name for word in RANDOM):
        return PASSED, "random"
    for result, wanted in zip(results, expected, strict=True):
        said = compare(result, wanted, case.rtol, case.atol)
        if said:
            return WRONG, said
    return PASSED, ""


def as_given(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def as_arrays(output: Any) -> Any:
    if isinstance(output, (list, tuple)):
        return [as_arrays(one) for one in output]
    return None if output is None else tensors.to_numpy(output)


def compare(result: Any, wanted: Any, rtol: float, atol: float) -> str:
    if isinstance(wanted, (list, tuple)):
        if len(result) != len(wanted):
            return f"{len(result)} items instead of {len(wanted)}"
        return next(filter(None, (compare(r, w, rtol, atol) for r, w in zip(result, wanted))), "")
    if wanted is None or result is None:
        return "" if wanted is result else f"{result} instead of {wanted}"
    wanted = np.asarray(wanted)
    if result.dtype != wanted.dtype or result.shape != wanted.shape:
        return f"{result.dtype}{result.shape} instead of {wanted.dtype}{wanted.shape}"
    if wanted.dtype in tensors.TORCH_OF_FOREIGN or wanted.dtype.kind == "f":
        eps = 2e-2 if wanted.dtype.itemsize < 4 else 1e-5
        close = np.allclose(
            result.astype("float64"), wanted.astype("float64"), max(rtol, eps), max(atol, eps), equal_nan=True
        )
        return "" if close else "other values"
    return "" if np.array_equal(result, wanted) else "other values"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="1/1")
    chosen = parser.parse_args()
    logging.getLogger("metaschedule").setLevel(logging.ERROR)
    outcomes: Counter[str] = Counter()
    part, parts = map(int, chosen.part.split("/"))
    found = [
        n for n, case in cases().items() if chosen.only in n and (is_float32(case) or not chosen.float32)
    ]
    for name in found[part - 1 :: parts]:
        outcome, said = run_case(cases()[name], chosen.compile)
        outcomes[outcome] += 1
        if outcome != PASSED:
            print(f"{outcome:8} {name}: {said[:150]}", flush=True)
    print(f"{outcomes[PASSED]} of {outcomes.total()} passed; {dict(outcomes)}")


if __name__ == "__main__":
    main()
