"""Whether a call is looked at from outside: its tensors may have no memory, or more to them than values."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Whether a function is being traced or transformed: by `torch.jit.trace`, `vmap`, `torch.func`, or for
    derivatives in forward mode."""
    return (
        torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )


def is_observed() -> bool:
    """Whether each operator or module of a call is somebody's business: modes, hooks of all modules."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or bool(torch.nn.modules.module._has_any_global_hook())
    )
