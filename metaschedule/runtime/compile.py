"""LLVM text to object code, to assembly, to optimised LLVM text; for this machine or another.

The target machine is position independent with the small code model: LLJIT aborts the process on
objects of the default model, and the same bytes link into a shared library.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from metaschedule.target import Target

_LOCK = threading.RLock()  # LLVM's one global context is not thread-safe
_READY: set[str] = set()


def enter_llvm() -> None:
    """Wait until nobody is inside LLVM: a process that forks meanwhile would wait, in the child, for a thread
    that is not there. llvmlite has a lock of its own, which it also takes to free what it made."""
    _LOCK.acquire()
    llvm.ffi.lib._lock.__enter__()


def leave_llvm() -> None:
    llvm.ffi.lib._lock.__exit__(None, None, None)
    _LOCK.release()


os.register_at_fork(before=enter_llvm, after_in_parent=leave_llvm, after_in_child=leave_llvm)


class CompileError(RuntimeError):
    """LLVM refused generated text: a bug of ours, never a user's. `path` is where the text was
    kept."""

    def __init__(self, message: str, path: Path | None) -> None:
        super().__init__(f"{message}\nthe LLVM text was kept in {path}" if path else message)
        self.path = path


def compile_object(llvm_text: str, target: Target, opt: int = 3) -> bytes:
    """A relocatable object file (ELF on Linux) for `target`, which need not be this machine."""
    with _LOCK:
        machine, module = parse_and_optimize(llvm_text, target, opt)
        return machine.emit_object(module)


def assembly(llvm_text: str, target: Target, opt: int = 3) -> str:
    """The assembly of the code that `compile_object` would emit."""
    with _LOCK:
        machine, module = parse_and_optimize(llvm_text, target, opt)
        return machine.emit_assembly(module)


def optimize_llvm(llvm_text: str, target: Target, opt: int = 3) -> str:
    """The module's text after LLVM's optimiser."""
    with _LOCK:
        _, module = parse_and_optimize(llvm_text, target, opt)
        return str(module)


def compile_hidden(llvm_text: str, target: Target, entry: str, name: str, opt: int = 3) -> bytes:
    """An object whose `entry` is called `name`, with no symbol visible outside the library it ends
    in."""
    with _LOCK:
        machine = target_machine(target, opt)
        module = parse_module(llvm_text, machine, target)
        module.get_function(entry).name = name
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.linkage.name == "external":
                value.visibility = "hidden"
        optimize(module, machine, opt)
        return machine.emit_object(module)


def parse_and_optimize(llvm_text: str, target: Target, opt: int) -> tuple[Any, Any]:
    """The target machine and the module after optimisation, of one parse."""
    if not 0 <= opt <= 3:
        raise ValueError(f"opt must be 0 to 3, got {opt}")
    machine = target_machine(target, opt)
    module = parse_module(llvm_text, machine, target)
    optimize(module, machine, opt)
    return machine, module


def parse_module(llvm_text: str, machine: Any, target: Target) -> Any:
    """A verified module, or a CompileError that names the file with its text.

    The data layout must stand in the text: alignments that it leaves open are settled by the
    parser.
    """
    if "target datalayout" not in llvm_text:
        layout = f'target datalayout = "{machine.target_data}"'
        llvm_text = f'{layout}\ntarget triple = "{target.triple}"\n{llvm_text}'
    try:
        module = llvm.parse_assembly(llvm_text)
        module.verify()
    except RuntimeError as error:
        message = f"LLVM refused the module: {str(error).strip()}"
        raise CompileError(message, keep(llvm_text)) from None
    return module


def optimize(module: Any, machine: Any, opt: int) -> None:
    """Run LLVM's standard pipeline of that level."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
    # A schedule says what is unrolled. Left to LLVM, copying loops of a few hundred iterations unroll
    # fully and take ten times as long to compile as the kernel they feed.
    tuning.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)


def target_machine(target: Target, opt: int = 3) -> Any:
    """LLVM's machine for a target: position independent, small code model."""
    initialize(target.arch)
    try:
        found = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise CompileError(f"no code generator for {target.triple}: {error}", None) from None
    return found.create_target_machine(
        cpu=target.cpu,
        features=target.feature_string,
        opt=opt,
        reloc="pic",
        codemodel="small" if not target.arch.startswith("riscv") else "medium",
        abiname=target.abi,
    )


def initialize(arch: str) -> None:
    """Initialise LLVM's code generator of an architecture, once; the others only when asked for."""
    if arch in _READY:
        return
    with _LOCK:
        if arch == llvm.get_default_triple().partition("-")[0]:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        else:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        _READY.add(arch)


def keep(llvm_text: str) -> Path | None:
    """Write refused text where a person can look at it."""
    try:
        handle, name = tempfile.mkstemp(prefix="metaschedule-", suffix=".ll")
        with os.fdopen(handle, "w") as file:
            file.write(llvm_text)
    except OSError:
        return None
    return Path(name)
