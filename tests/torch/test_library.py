"""Models as shared libraries: called from C, Rust and NumPy, without this package and without torch."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.runtime.elf import hide_symbols, symbols  # noqa: E402

nn = torch.nn
EXAMPLE = Path(__file__).parents[2] / "examples" / "without_python"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.convolution = nn.Linear(24, 16), nn.Conv2d(3, 8, 3)
        self.table = nn.Parameter(torch.randn(5, 7))

    def forward(self, x: Any, more: dict[str, Any]) -> Any:
        hidden = torch.relu(self.layer(x)) + more["y"]
        return {
            "hidden": hidden,
            "turned": hidden.t(),
            "image": self.convolution(more["image"]),
            "table": self.table.detach(),
            "every_other": x[:, ::2],
            "part": hidden[:, 3:9],
        }


def data(*shape: int) -> Any:
    """What the examples fill their inputs with."""
    return (torch.arange(int(np.prod(shape))) % 7 - 3).float().reshape(shape)


@pytest.fixture(scope="module")
def case() -> Any:
    torch.manual_seed(0)
    args = (data(4, 24), {"y": data(4, 16), "image": data(1, 3, 9, 9)})
    model = Model().eval()
    with torch.no_grad():
        return ms.torch.compile(torch.export.export(model, args)), args, model(*args)


def flat(args: Any) -> list[Any]:
    return [args[0].numpy(), args[1]["y"].numpy(), args[1]["image"].numpy()]


def run(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sums(text: str) -> dict[str, float]:
    return {line.split()[0]: float(line.rpartition(" ")[2]) for line in text.splitlines()}


def assert_sums(text: str, want: Any) -> None:
    found = sums(text)
    assert list(found) == list(want)
    for name, tensor in want.items():
        assert found[name] == pytest.approx(float(tensor.double().sum()), rel=1e-4, abs=1e-3)


def compile_main(where: Path, *flags: str, cc: str = "cc") -> None:
    library = ["model.so", "-Wl,-rpath,$ORIGIN", "-pthread"]
    run([cc, "-Wall", "-Werror", *flags, "-I.", "-o", "main", str(EXAMPLE / "main.c"), *library], cwd=where)


BARE = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "OMP_NUM_THREADS": "2"}  # no Python, no library path


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_from_c_and_numpy(case: Any, tmp_path: Path, weights: str) -> None:
    compiled, args, want = case
    compiled.export_library(tmp_path / "model.so", weights=weights)
    assert (tmp_path / "model.weights").exists() == (weights == "beside")
    compile_main(tmp_path)
    assert_sums(run([str(tmp_path / "main")], cwd="/", env=BARE), want)
    text = """
import sys
sys.modules["torch"] = sys.modules["metaschedule"] = None
import numpy as np
from model_loader import Model
inputs = [np.load(f"{n}.npy") for n in range(3)]
with Model(threads=1) as model:
    assert [t.name for t in model.inputs] == ["x", "more_y", "more_image"]
    for n, array in enumerate(model(*inputs[:1], more_image=inputs[2], more_y=inputs[1])):
        np.save(f"out{n}.npy", array)
    try:
        model(inputs[0][:2], *inputs[1:])
    except ValueError as error:
        assert "x: float32[4, 24] is needed, got float32[2, 24]" in str(error)
    else:
        raise AssertionError
"""
    for n, array in enumerate(flat(args)):
        np.save(tmp_path / f"{n}.npy", array)
    run([sys.executable, "-c", text], cwd=tmp_path)
    for n, tensor in enumerate(want.values()):
        np.testing.assert_allclose(np.load(tmp_path / f"out{n}.npy"), tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_only_the_interface_is_visible(case: Any, tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    case[0].export_library(tmp_path / "libnet.so")
    found = {
        line.split()[-1]
        for line in run(["nm", "-D", "--defined-only", str(tmp_path / "libnet.so")]).splitlines()
    }
    api = "create destroy input input_count memory message output output_count run"
    assert found == {f"net_{name}" for name in api.split()}
    declared = (tmp_path / "net.h").read_text()
    assert all(f"{name}(" in declared for name in found)


def test_from_rust(case: Any, tmp_path: Path) -> None:
    if shutil.which("rustc") is None:
        pytest.skip("needs rustc")
    case[0].export_library(tmp_path / "libmodel.so")
    linked = ["-L", ".", "-l", "model", "-C", "link-arg=-Wl,-rpath,$ORIGIN"]
    run(["rustc", "-o", "main", str(EXAMPLE / "main.rs"), *linked], cwd=tmp_path)
    assert_sums(run([str(tmp_path / "main")], cwd="/", env=BARE), case[2])


def test_no_invalid_access_and_no_leak(case: Any, tmp_path: Path) -> None:
    """Everything but the kernels under the address sanitiser."""
    flags = "-fsanitize=address -g"
    try:
        case[0].export_library(tmp_path / "model.so", weights="beside", cc=f"cc {flags}")
        compile_main(tmp_path, *flags.split())
    except (RuntimeError, AssertionError) as error:
        pytest.skip(f"no address sanitiser: {error}"[:200])
    assert_sums(run([str(tmp_path / "main")], cwd="/", env=BARE), case[2])


def test_no_invalid_access_of_kernels(case: Any, tmp_path: Path) -> None:
    """Kernels too, under valgrind, which knows AVX2."""
    if shutil.which("valgrind") is None or platform.machine() != "x86_64":
        pytest.skip("needs valgrind on x86-64")
    _, args, want = case
    torch.manual_seed(0)
    compiled = ms.torch.compile(torch.export.export(Model().eval(), args), target="x86-64-v3,cores=1")
    compiled.export_library(tmp_path / "model.so")
    compile_main(tmp_path, "-g")
    text = run(
        ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "./main"], cwd=tmp_path, env=BARE
    )
    assert_sums(text, want)


def test_for_another_cpu(case: Any, tmp_path: Path) -> None:
    cc, qemu = "aarch64-linux-gnu-gcc", shutil.which("qemu-aarch64")
    if shutil.which(cc) is None:
        pytest.skip(f"needs {cc}")
    torch.manual_seed(0)
    compiled = ms.torch.compile(torch.export.export(Model().eval(), case[1]), target="aarch64,cores=2")
    if platform.machine() != "aarch64":
        with pytest.raises(RuntimeError, match="compiled for aarch64"):
            compiled(*case[1])
    compiled.export_library(tmp_path / "model.so", cc=cc)
    if qemu is None:
        pytest.skip("built; to run it needs qemu-aarch64")
    compile_main(tmp_path, cc=cc)
    assert_sums(run([qemu, "-L", "/usr/aarch64-linux-gnu", "./main"], cwd=tmp_path, env=BARE), case[2])


def test_damaged_and_missing_weights_are_refused(case: Any, tmp_path: Path) -> None:
    from metaschedule.runtime.standalone import Model, ModelError

    library = case[0].export_library(tmp_path / "model.so", weights="beside")
    weights = tmp_path / "model.weights"
    whole = weights.read_bytes()
    with pytest.raises(ModelError, match="cannot be read"):
        Model(library, weights=tmp_path / "elsewhere")
    for damaged in (whole[:-1], b"other" + whole[5:], b""):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged, or not the one"):
            Model(library, weights=tmp_path / "damaged")
    for n in range(2):  # one after the other, and both alive
        with Model(library), Model(library, weights=weights, threads=n) as model:
            assert len(model(*flat(case[1]))) == 6


def test_wrong_pointers_are_refused(case: Any, tmp_path: Path) -> None:
    from metaschedule.runtime.standalone import Model, addresses

    model = Model(case[0].export_library(tmp_path / "model.so"))
    inputs, outputs = flat(case[1]), [np.empty(t.shape, "float32") for t in model.outputs]

    def message(inputs: Any, outputs: Any) -> str:
        return model._message(model._run(model._handle, inputs, outputs)).decode()

    assert message(addresses(inputs), addresses(outputs)) == "ok"
    assert message(None, addresses(outputs)) == "a pointer is NULL"
    wrong = addresses(outputs)
    wrong[0] = wrong[0] + 2
    assert message(addresses(inputs), wrong) == "a tensor is not aligned to its element"
    wrong[0] = inputs[1].ctypes.data + 4
    assert message(addresses(inputs), wrong) == "an output overlaps another tensor"


def test_failures_have_a_message(tmp_path: Path) -> None:
    from metaschedule.runtime.standalone import Model, ModelError

    table = nn.Embedding(5, 4)
    exported = torch.export.export(table, (torch.tensor([1, 2]),))
    model = Model(ms.torch.compile(exported).export_library(tmp_path / "table.so"))
    np.testing.assert_array_equal(model(np.array([4, 0])), table.weight.detach().numpy()[[4, 0]])
    with pytest.raises(ModelError, match="embedding.*out of range"):
        model(np.array([4, 5]))


class Eigenvalues(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvalsh(torch.relu(x))


def test_nodes_of_torch_are_named(tmp_path: Path) -> None:
    compiled = ms.torch.compile(torch.export.export(Eigenvalues(), (torch.eye(4),)))
    with pytest.raises(ValueError, match=r"runs partly in torch.*\n  \w+ = aten._linalg_eigh"):
        compiled.export_library(tmp_path / "model.so")
    assert not list(tmp_path.iterdir())


def test_wrong_options_are_refused(case: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="identifier of C"):
        case[0].export_library(tmp_path / "model.so", name="my model")
    with pytest.raises(ValueError, match="'inside' or 'beside'"):
        case[0].export_library(tmp_path / "model.so", weights="outside")
    with pytest.raises(RuntimeError, match="'no-such-cc' is not installed"):
        case[0].export_library(tmp_path / "model.so", cc="no-such-cc")


def test_a_loaded_model_is_exported(case: Any, tmp_path: Path) -> None:
    from metaschedule.runtime.standalone import Model

    case[0].save(tmp_path / "model.ms")
    model = Model(ms.torch.load(tmp_path / "model.ms").export_library(tmp_path / "model.so"))
    np.testing.assert_allclose(model(*flat(case[1]))[0], case[2]["hidden"].numpy(), rtol=1e-4, atol=1e-5)


def test_symbols_are_renamed_and_hidden(case: Any) -> None:
    compiled = case[0].plan.kernels[0].kernel
    defined, needed = symbols(compiled.code)
    renamed, still = symbols(hide_symbols(compiled.code, "my_"))
    assert renamed == {f"my_{name}" for name in defined}
    assert still == needed
