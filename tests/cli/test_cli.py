"""The commands as users run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import metaschedule as ms
from metaschedule.cli import app
from metaschedule.workloads import operations

FILE = """
import metaschedule as ms


def small():
    return ms.workloads.create("GMM", b=1, n=12, m=16, k=5)


program = small()
number = 3
"""


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("name", ["program", "small"])
def test_space_of_a_program_in_a_file(file: Path, name: str) -> None:
    code, text = run("space", f"{file}:{name}", "--draws", 8, "--json")
    found = json.loads(text)
    assert code == 0
    assert found["accepted"] + sum(n for _, _, n in found["rejected"]) == found["draws"] == 8
    assert not found["size_is_exact"]
    tiled = found["sketches"][-1]
    assert tiled["size_is_exact"]
    assert tiled["sites"] == ["perfect_tile"] * 4 + ["categorical"]
    assert found["size"] >= sum(s["size"] for s in found["sketches"]) - len(found["sketches"])


def test_space_names_the_instructions_that_it_uses(tmp_path: Path) -> None:
    path = tmp_path / "narrow.py"
    path.write_text(
        """
from metaschedule import te
a, b, k = te.placeholder((8, 16), "uint8"), te.placeholder((16, 32), "int8"), te.reduce_axis(16)
c = te.compute((8, 32), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k))
program = te.program([a, b], [c])
"""
    )
    args = ("space", f"{path}:program", "--draws", 0, "--target")
    assert "hardware instructions: x86.vpdpbusd.512" in run(*args, "x86-64-v4,+avx512vnni")[1]
    found = json.loads(run(*args, "x86-64-v3", "--json")[1])
    assert {name for sketch in found["sketches"] for name in sketch["hardware"]} == {"x86.vpmaddwd.256"}


def test_space_as_a_table(file: Path) -> None:
    code, text = run("space", f"{file}:program", "--draws", 4)
    assert code == 0
    assert "SSRSRS" in text
    assert "4 of 4 random candidates are valid" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["space", "GEMM"], "there is no workload 'GEMM'; known are GMM,"),
        (["space", "GMM", "--config", "99"], "GMM has configurations 0 to 4, not 99"),
        (["space", "missing.py:f"], "there is no file missing.py"),
        (["bench", "operators", "GEMM"], "no workload 'GEMM'"),
        (["bench", "operators", "GMM", "--against", "jax"], "there is no contestant 'jax'; there are torch,"),
        (["bench", "spaces", "GEMM"], "no workload 'GEMM'"),
        (
            ["bench", "spaces", "--spaces", "loops,halide"],
            "'halide' is none of loops, autotvm, ansor, default",
        ),
        (["bench", "instructions", "--precisions", "int4"], "'int4' is none of float32, bfloat16"),
        (["bench", "instructions", "--parts", "operators", "--only", "int5"], "no operator has 'int5'"),
        (["bench", "operators", "GMM", "--weights", "none"], "weights are both, arguments, constants"),
        (["show", "GMM", "bytes"], "'bytes' is none of program, trace, schedule, llvm, asm"),
    ],
)
def test_wrong_input_is_a_message_and_exit_code_2(arguments: list[str], message: str) -> None:
    code, text = run(*arguments)
    assert code == 2
    assert message in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:", ["line 1", "SyntaxError: invalid syntax"]),
        ("raise KeyError(3)", ["line 1, in <module>", "KeyError: 3"]),
        ("def f():\n    return 1 / 0", ["line 2, in f", "ZeroDivisionError"]),
        ("def f(n):\n    return n", ["TypeError: f() missing 1 required positional argument: 'n'"]),
    ],
)
def test_what_a_file_raises_is_told_from_the_file_on(text: str, told: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(text)
    code, said = run("space", f"{path}:f")
    assert code == 1
    assert all(part in said for part in [*told, f"{path} could not be run"]), said
    assert "metaschedule" not in said  # none of our frames


def test_names_in_a_file_that_are_no_programs(file: Path) -> None:
    code, text = run("space", f"{file}:number")
    assert code == 2
    assert "is a int, neither" in " ".join(text.replace("│", " ").split())
    code, text = run("space", f"{file}:nothing")
    assert code == 2
    assert "has no 'nothing'; it has program" in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("what", "text"),
    [("program", "def GMM("), ("trace", "sch.get_block"), ("schedule", "T.parallel"), ("asm", "vfmadd")],
)
def test_show(file: Path, what: str, text: str) -> None:
    code, output = run("show", f"{file}:program", what, "--target", "x86-64-v3,cores=2")
    assert code == 0
    assert text in output


def test_tune_then_look_into_the_database(file: Path, tmp_path: Path) -> None:
    db, lines, other = tmp_path / "a.db", tmp_path / "a.jsonl", tmp_path / "b.db"
    code, text = run("tune", f"{file}:program", "--trials", 4, "--db", db, "--json")
    (found,) = json.loads(text[text.index("[") :])
    assert code == 0
    assert found["outcomes"] == {"ok": 4}
    assert found["latency"] > 0
    code, text = run("db", "ls", db, "--json")
    (row,) = json.loads(text)
    assert (row["program"], row["trials"]) == ("GMM", 4)
    code, text = run("db", "best", db, f"{file}:program")
    assert code == 0
    assert "sch.get_block" in text
    assert (
        run("db", "export", db, lines)[1].startswith("4 records")
        or "records written" in run("db", "export", db, lines)[1]
    )
    assert "added, 0 there already" in run("db", "import", other, lines)[1]
    assert "0 records added" in run("db", "merge", other, db)[1]
    assert run("db", "best", db, "GMM")[0] == 1  # another program


def test_work_by_which_latencies_are_judged() -> None:
    t2d = ms.workloads.create("T2D")
    assert operations("T2D") == ms.workloads.flops("T2D") < operations(t2d)
    endless = ms.parse("""
def endless(X: T.Tensor((1,), "float32"), Y: T.Output((1,), "float32")):
    while X[0] > 0.0:
        Y[0] = X[0]
""")
    assert operations(endless) == 0


def test_errors_are_a_line_on_standard_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_text("not a database")
    command = [sys.executable, "-m", "metaschedule", "db", "ls", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert broken.read_text() == "not a database"


def test_bench_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is optional")
    monkeypatch.setattr("metaschedule.report.operators.ROUNDS", 1)
    figures, chart, tables = tmp_path / "figures.json", tmp_path / "chart.svg", tmp_path / "tables.md"
    code, text = run(
        *("bench", "operators", "GMM:n=12,m=16,k=5", "NRM", "--trials", 2, "--db", tmp_path / "a.db"),
        *("--json", figures, "--chart", chart, "--markdown", tables),
    )
    assert code == 0
    assert "geometric mean" in text
    arguments, constants = json.loads(figures.read_text())["tables"]
    assert [row["workload"] for row in arguments["rows"]] == ["GMM", "NRM"]
    assert [row["workload"] for row in constants["rows"]] == ["GMM"]
    for row in arguments["rows"] + constants["rows"]:
        times = row["called_from_python"]
        assert row["ratios"] == {"torch": times["torch"]["seconds"] / times["ours"]["seconds"]}
        assert row["tuning_seconds"]["ours"] > 0
    assert constants["geometric_means"] == pytest.approx(constants["rows"][0]["ratios"])
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")
    assert tables.read_text().count("geometric mean") == 2


def test_bench_spaces(tmp_path: Path) -> None:
    figures, chart, table = tmp_path / "figures.json", tmp_path / "chart.svg", tmp_path / "table.md"
    code, text = run(
        *("bench", "spaces", "--workloads", "GMM:n=8,m=16,k=4", "--trials", 2, "--seeds", 1),
        *("--spaces", "loops,default", "--json", figures, "--chart", chart, "--markdown", table),
    )
    assert code == 0
    assert "default x loops" in text
    assert "left out" in text
    (row,) = json.loads(figures.read_text())["rows"]
    assert [(one["space"], one["trials"]) for one in row["runs"]] == [("loops", 2), ("default", 2)]
    assert row["gains"]["default over loops"] == pytest.approx(
        row["latency"]["loops"]["median"] / row["latency"]["default"]["median"]
    )
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")
    assert table.read_text().startswith("|  | loops, us | default, us | default x loops |")


def test_bench_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metaschedule.report.instructions import product

    monkeypatch.setattr("metaschedule.report.instructions.operators", lambda: [product(8, 16, 8, "int8")])
    figures, chart, table = tmp_path / "figures.json", tmp_path / "chart.svg", tmp_path / "table.md"
    code, text = run(
        *("bench", "instructions", "--parts", "operators", "--trials", 1),
        *("--json", figures, "--chart", chart, "--markdown", table),
    )
    assert code == 0
    assert "int8 8x16x8" in text
    (row,) = json.loads(figures.read_text())["operators"]
    assert row["runs"][0]["space"] == "without"
    assert set(row["gains"]) == set(row["latency"]) - {"without"}
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")
    assert table.read_text().startswith("**Operators")
