"""TVM's side: run by the Python of TVM's environment, it knows nothing of this package but its script.

A request is a line of JSON on standard input, `{"do": "tune", ...}`; the answer a line on standard output.
Arrays are files of NumPy's. What TVM prints goes to standard error.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule
from tvm.script import tirx

REPEAT_TIME = 1e-3  # seconds, as in our own loop

# TVM's script is ours but for these words. Regions it infers.
REWRITES = {
    r"@ms\.program": "@T.prim_func(s_tir=True)",
    r"T\.(Tensor|Output)\(": "T.Buffer(",
    r"T\.alloc\(": "T.sblock_alloc_buffer(",
    r"T\.(spatial|reduce)\(": r"T.axis.\1(",
    r"T\.block\(": "T.sblock(",
    r"T\.select\(": "T.if_then_else(",
    r"\n *T\.(reads|writes)\(.*": "",
}


def parse_script(script: str) -> Any:
    """The function of a program given in our script."""
    for ours, theirs in REWRITES.items():
        script = re.sub(ours, theirs, script)
    return tvm.script.from_source(script, extra_vars={"T": tirx}).with_attr("global_symbol", "main")


def best(function: Any, target: Any, directory: str) -> Any:
    """A module of the function as the fastest record schedules it."""
    records = meta_schedule.database.JSONDatabase(work_dir=directory)
    schedule = meta_schedule.tir_integration.compile_tir(records, function, target)
    if schedule is None:
        raise RuntimeError(f"no candidate worked: {directory} has the logs of its tuning")
    return schedule.mod


class Server:
    """`directory` holds the records of a program. The kernel that was loaded last is the one measured."""

    def tune(self, script: str, target: dict[str, Any], directory: str, trials: int, seed: int) -> float:
        """Seconds it took."""
        start = time.perf_counter()
        function, machine = parse_script(script), tvm.target.Target(target)
        seed += 1  # 0 would be no seed
        meta_schedule.tune_tir(function, machine, directory, max_trials_global=trials, seed=seed)
        seconds = time.perf_counter() - start
        best(function, machine, directory)
        return seconds

    def load(self, script: str, target: dict[str, Any], directory: str, inputs: str, output: str) -> None:
        """Build the best record, run it on the files in `inputs` and write the result to `output`, which has
        an array of its shape."""
        machine = tvm.target.Target(target)
        self.library = tvm.compile(best(parse_script(script), machine, directory), target=machine).jit()
        arrays = [np.load(path) for path in (*sorted(Path(inputs).iterdir()), output)]
        self.arrays = [tvm.runtime.tensor(array) for array in arrays]
        self.library["main"](*self.arrays)
        np.save(output, self.arrays[-1].numpy())

    def measure(self, seconds: float) -> float:
        """Seconds per call: the fastest repeat of as many as fit in the time."""

        def repeats(count: int) -> list[float]:
            timer = self.library.time_evaluator(
                "main", tvm.cpu(), number=1, repeat=count, min_repeat_ms=round(1e3 * REPEAT_TIME)
            )
            return list(timer(*self.arrays).results)

        once = min(repeats(1))
        return min(once, *repeats(max(1, round(seconds / max(once, REPEAT_TIME)))))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(server, request.pop("do"))(**request)}
        except Exception as error:
            traceback.print_exc()  # to standard error
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
