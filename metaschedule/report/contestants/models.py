"""Who runs whole models: PyTorch in eager and compiled, zentorch, OpenVINO, ONNX Runtime, this package.

A contestant is a function that prepares a `Subject`, a model in a precision, and gives the call that is
timed. It raises `Skipped` where it cannot take part: it is not installed, or the machine or the model has
not what it needs. The subject is everybody's: who changes a model copies it.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import config as inductor_config

from ..models.precision import Args, convert

Call = Callable[[], Any]


class Skipped(Exception):
    """A contestant takes no part; the message says why."""


@dataclass
class Subject:
    """A model to run, and its arguments; `model` and `args` are in the precision, `original` in float32."""

    name: str
    original: nn.Module
    original_args: Args
    precision: str = "float32"

    @cached_property
    def converted(self) -> tuple[nn.Module, Args]:
        return convert(self.original, self.original_args, self.precision)

    def forget(self) -> None:
        """Let go of the converted model."""
        self.__dict__.pop("converted", None)

    @property
    def model(self) -> nn.Module:
        return self.converted[0]

    @property
    def args(self) -> Args:
        return self.converted[1]


Prepare = Callable[[Subject], Call]


def eager(subject: Subject) -> Call:
    """int8 with dynamic activations by `torch.ao.quantization`, whose linear layers are kernels. Graphs of
    PT2E are made of quantised and dequantised values, which eager computes as they stand."""
    if subject.precision == "int8-dynamic":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantised = torch.ao.quantization.quantize_dynamic(
                copy.deepcopy(subject.original), {nn.Linear}, torch.qint8
            )
        return partial(quantised, *subject.args)
    return partial(subject.model, *subject.args)


def channels_last(subject: Subject) -> Call:
    if not all(x.ndim == 4 for x in subject.args):
        raise Skipped("not a model of images")
    layout: Any = {"memory_format": torch.channels_last}
    model = copy.deepcopy(subject.model).to(**layout)
    return partial(model, *(x.to(**layout) for x in subject.args))


def torch_compile(subject: Subject) -> Call:
    """With freezing, which packs weights, and is what quantised graphs need."""
    return partial(torch.compile(subject.model, options={"freezing": True}), *subject.args)


def torch_compile_default(subject: Subject) -> Call:
    """As who knows no options calls it: weights are not packed."""
    return partial(torch.compile(subject.model), *subject.args)


def torch_compile_max_autotune(subject: Subject) -> Call:
    """With freezing, and templates of its own tried beside the libraries."""
    options: Any = {"freezing": True, "max_autotune": True}
    return partial(torch.compile(subject.model, options=options), *subject.args)


def onnxruntime(subject: Subject) -> Call:
    """Exported by torch, with all of its optimisations; arrays go in and out without copies of ours."""
    try:
        ort: Any = import_module("onnxruntime")
        import_module("onnxscript")
    except ImportError as error:
        raise Skipped("pip install onnxruntime onnxscript") from error
    if subject.precision != "float32":
        raise Skipped("it is compared in float32")
    with redirect_stdout(io.StringIO()):
        exported: Any = torch.onnx.export(subject.original, subject.original_args, dynamo=True, verbose=False)
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads, chosen.log_severity_level = torch.get_num_threads(), 3
    session = ort.InferenceSession(
        exported.model_proto.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
    )
    arrays = [x.numpy() for x in subject.original_args]
    fed = {given.name: array for given, array in zip(session.get_inputs(), arrays, strict=True)}
    return lambda: [torch.from_numpy(y) for y in session.run(None, fed)]


def zentorch(subject: Subject) -> Call:
    try:
        import_module("zentorch")
    except ImportError as error:
        raise Skipped(f"pip install zentorch==2.13.0.2 ({error})") from error
    run = torch.compile(subject.model, backend="zentorch")
    with inductor_config.patch(freezing=True):
        run(*subject.args)
    return partial(run, *subject.args)


def openvino(subject: Subject) -> Call:
    """int8 by NNCF: "static" is its quantisation after training, calibrated with the arguments; "dynamic" has
    weights compressed to int8, and OpenVINO quantises activations as they come."""
    try:
        ov: Any = import_module("openvino")  # a name that the type checker need not find
    except ImportError as error:
        raise Skipped("pip install openvino==2026.4.1") from error
    capabilities = ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if subject.precision == "bfloat16" and "BF16" not in capabilities:
        raise Skipped("OpenVINO has no bfloat16 on this machine")
    args = subject.original_args
    shapes = [tuple(x.shape) for x in args]
    converted = ov.convert_model(subject.original, example_input=args, input=shapes)
    if subject.precision.startswith("int8"):
        converted = quantise_by_nncf(converted, args, subject.precision)
    hints = {
        "INFERENCE_PRECISION_HINT": "bf16" if subject.precision == "bfloat16" else "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = ov.compile_model(converted, "CPU", hints)
    arrays = [x.numpy() for x in args]
    return lambda: [torch.from_numpy(y) for y in compiled(arrays).values()]


def quantise_by_nncf(model: Any, args: Args, precision: str) -> Any:
    try:
        nncf: Any = import_module("nncf")
    except ImportError as error:
        raise Skipped("int8 of OpenVINO needs NNCF: pip install nncf==3.4.0") from error
    with redirect_stdout(io.StringIO()):  # bars of progress
        if precision == "int8-dynamic":
            return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        data = nncf.Dataset([[x.numpy() for x in args]])
        return nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=1)


def ours(subject: Subject, database: str | Path | None = None) -> Call:
    options: Any = {} if database is None else {"database": str(database)}
    run = torch.compile(subject.model, backend="metaschedule", options=options)
    return partial(run, *subject.args)


def ours_optimized(subject: Subject, database: str | Path | None = None) -> Call:
    from ...torch import optimize

    return partial(optimize(subject.model, subject.args, database=database), *subject.args)


OTHERS: dict[str, Prepare] = {
    "eager": eager,
    "channels-last": channels_last,
    "torch-compile-default": torch_compile_default,
    "torch-compile": torch_compile,
    "torch-compile-max-autotune": torch_compile_max_autotune,
    "zentorch": zentorch,
    "openvino": openvino,
    "onnxruntime": onnxruntime,
}
PYTORCH = tuple(name for name in OTHERS if name in ("eager", "channels-last") or name.startswith("torch"))


def tensors_of(outputs: Any) -> list[Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
