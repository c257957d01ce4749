"""Kernel as data; LLVM text to object code, here and for other machines."""

from __future__ import annotations

import json
import pickle

import pytest
from handmade_kernels import add, exponential, scratch

from metaschedule.runtime import (
    ArgSpec,
    CompileError,
    Kernel,
    ObjectError,
    assembly,
    compile_object,
    load_object,
    optimize_llvm,
)
from metaschedule.target import resolve

FMA = """
define void @f(ptr %a) {{
  %x = load {v}, ptr %a, align 4
  %y = call {v} @llvm.fmuladd.v{n}f32({v} %x, {v} %x, {v} %x)
  store {v} %y, ptr %a, align 4
  ret void
}}
declare {v} @llvm.fmuladd.v{n}f32({v}, {v}, {v})
"""


def test_a_kernel_is_data() -> None:
    kernel = scratch()
    assert Kernel.from_json(json.loads(json.dumps(kernel.to_json()))) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert repr(kernel) == "<Kernel scratch(A: float32[100]) -> C: float32[100]>"
    assert [spec.name for spec in kernel.params] == ["A", "C"]
    with pytest.raises(ValueError, match="not a kernel: 'outputs'"):
        Kernel.from_json({"inputs": []})


def test_workspace_parts_are_aligned() -> None:
    kernel = Kernel("k", "", (), (), resolve(), shared_bytes=65, private_bytes=1)
    assert kernel.workspace_bytes(3) == 128 + 3 * 64
    assert ArgSpec("x", (2, 3), "bfloat16").nbytes == 12
    with pytest.raises(ValueError, match="max_threads"):
        Kernel("k", "", (), (), resolve(), max_threads=0)
    with pytest.raises(ValueError, match="unknown dtype 'complex64'"):
        ArgSpec("x", (), "complex64")


@pytest.mark.parametrize(
    ("target", "instruction", "machine"),
    [
        ("x86-64-v3", "ymm", 62),
        ("x86-64-v4", "zmm", 62),
        ("aarch64", "fmla", 183),
        ("riscv64", "vfmadd", 243),
    ],
)
def test_other_machines(target: str, instruction: str, machine: int) -> None:
    there = resolve(target)
    lanes = there.lanes("float32")
    text = FMA.format(n=lanes, v=f"<{lanes} x float>")
    assert instruction in assembly(text, there)
    code = compile_object(text, there)
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == machine


def test_optimised_text_is_optimised() -> None:
    kernel = add((64,))
    assert "x float>" in optimize_llvm(kernel.llvm, resolve("x86-64-v3"))
    assert "x float>" not in optimize_llvm(kernel.llvm, resolve("x86-64-v3"), opt=0)


def test_refused_text_is_kept() -> None:
    with pytest.raises(CompileError, match="expected instruction opcode") as error:
        compile_object("define void @f() { flub }", resolve())
    assert error.value.path is not None
    assert "flub" in error.value.path.read_text()
    assert str(error.value.path) in str(error.value)
    error.value.path.unlink()
    with pytest.raises(ValueError, match="opt must be 0 to 3, got 4"):
        compile_object("", resolve(), opt=4)


def test_text_that_parses_but_is_wrong() -> None:
    text = "define i32 @f() { br label %x\nx:\n %y = add i32 %z, 1\n %z = add i32 %y, 1\n ret i32 %y }"
    with pytest.raises(CompileError, match="does not dominate") as error:
        compile_object(text, resolve())
    assert error.value.path is not None
    error.value.path.unlink()


def test_truncated_objects_are_refused() -> None:
    code = compile_object(exponential().llvm, resolve())
    for size in [*range(70), *range(70, len(code), 7), len(code) - 1]:
        with pytest.raises(ObjectError, match=r"truncated|not an object"):
            load_object(code[:size], ["exponential"])


def test_foreign_objects_are_refused() -> None:
    other = "aarch64" if resolve().arch == "x86_64" else "x86-64-v3"
    with pytest.raises(ObjectError, match=f"not for {resolve().arch}"):
        load_object(compile_object(add().llvm, resolve(other)), ["add"])
    with pytest.raises(ObjectError, match="not an object file"):
        load_object(b"PK\x03\x04 certainly not", ["add"])
    code = bytearray(compile_object(add().llvm, resolve()))
    code[16] = 3  # a shared library
    with pytest.raises(ObjectError, match="not a relocatable object"):
        load_object(bytes(code), ["add"])


def test_symbols_nobody_has() -> None:
    text = exponential().llvm.replace("@expf", "@wonderful")
    with pytest.raises(ObjectError, match="the code needs wonderful, which none of"):
        load_object(compile_object(text, resolve()), ["exponential"])
    code = compile_object(add().llvm, resolve())
    with pytest.raises(ObjectError, match="does not define 'plus'; it defines add"):
        load_object(code, ["plus"])


def test_loaded_code_is_separate() -> None:
    code = compile_object(add().llvm, resolve())
    first, second = load_object(code, ["add"]), load_object(code, ["add"])
    assert first["add"] != second["add"]
