"""What is wrong with a model, or with what it was called with; or what we do not do."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..torch.fallback import NotCaptured


class OnnxError(ValueError):
    """A model that cannot be read, translated or run as it is."""


class InvalidModel(OnnxError):
    """What was given is no ONNX model, or one that contradicts itself."""


class Unsupported(OnnxError):
    """A valid model that uses something we do not have: a dtype, an attribute's value, an opset."""


class UnsupportedOperator(Unsupported):
    """Operators that have neither a translation nor a function body; `operators` are their names."""

    def __init__(self, operators: Sequence[str]) -> None:
        self.operators = tuple(operators)
        super().__init__(f"no translation of {', '.join(self.operators)}")


class ValueNeeded(NotCaptured):
    """A shape, an index or a condition depends on the values of `tensor`, which are not known when a model is
    traced. If those of a few small inputs decide it, the model is specialised to them; otherwise it runs in
    eager."""

    def __init__(self, tensor: torch.Tensor, what: str) -> None:
        self.tensor, self.sources = tensor, frozenset[str]()
        super().__init__(f"{what} depends on values that are known only at run time")
