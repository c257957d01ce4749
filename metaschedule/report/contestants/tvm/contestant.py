"""TVM as a contestant: tuned by its own MetaSchedule, timed by its own native loop, weights as arguments."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ....ir import numpy_dtype
from ....target import Target
from ...case import Case
from ..contestant import ROUND_TIME, ContestantError, Variant
from .environment import VERSION, interpreter

CACHE = Path("~/.cache/metaschedule/tvm")
SERVER = Path(__file__).with_name("server.py")


class TVM:
    """`cache` keeps the environment and, by program, machine and budget, the records of TVM.

    It is tuned and runs on as many threads as we; `by_default` it runs on as many as it takes if nobody says
    how many: half of the CPUs, on x86, where it expects each core to show as two.
    """

    def __init__(
        self, target: Target, trials: int, seed: int, cache: Path = CACHE, by_default: bool = False
    ) -> None:
        self.target, self.trials, self.seed = target, trials, seed
        self.cache = cache.expanduser().absolute()
        self.name = "tvm-default" if by_default else "tvm"
        self.threads = None if by_default else target.cores

    def prepare(self, case: Case) -> float | None:
        if case.constant:
            return None
        directory = self._directory(case)
        done = directory / "seconds.json"
        if not done.exists():
            request = {"directory": str(directory), "trials": self.trials, "seed": self.seed}
            with closing(TvmServer(self.cache, self.target.cores)) as tuner:
                seconds = tuner.ask("tune", **self._program(case), **request)
            done.write_text(json.dumps(seconds))
        return json.loads(done.read_text())

    def variants(self, case: Case) -> Iterator[Variant]:
        if case.constant:
            return
        (output,) = case.program.outputs
        with tempfile.TemporaryDirectory() as folder:
            inputs, result = Path(folder, "inputs"), Path(folder, "output.npy")
            inputs.mkdir()
            for n, array in enumerate(case.arrays):
                np.save(inputs / f"{n:02}.npy", array)
            np.save(result, np.full(output.shape, np.nan, numpy_dtype(output.dtype)))
            self._process.ask(
                "load", **self._program(case), directory=str(self._directory(case)), inputs=str(inputs),
                output=str(result),
            )  # fmt: skip
            got = np.load(result)
        yield Variant(
            self.name, "", True, lambda: self._process.ask("measure", seconds=ROUND_TIME), lambda: got
        )

    def close(self) -> None:
        if "_process" in self.__dict__:
            self._process.close()

    def _program(self, case: Case) -> dict[str, Any]:
        machine = {"kind": "llvm", "mcpu": self.target.cpu, "num-cores": self.target.cores}
        return {"script": str(case.program), "target": machine}

    def _directory(self, case: Case) -> Path:
        facts = [str(case.program), self.target.key, self.trials, self.seed, VERSION]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        directory = self.cache / "records" / f"{case.name}-{self.trials}-{digest[:12]}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @cached_property
    def _process(self) -> TvmServer:
        return TvmServer(self.cache, self.threads)


class TvmServer:
    """A running server of TVM; `threads` None leaves their number to TVM."""

    def __init__(self, cache: Path, threads: int | None) -> None:
        python, self.log = interpreter(cache / "environment"), cache / "log.txt"
        environment = {k: v for k, v in os.environ.items() if k not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
        if threads is not None:
            environment["TVM_NUM_THREADS"] = str(threads)
        with self.log.open("a") as log:
            # -P: what lies beside the server must not hide modules that TVM imports
            self.process = subprocess.Popen(
                [python, "-P", SERVER], cwd=cache, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def close(self) -> None:
        self.process.communicate()  # the end of its requests ends it

    def ask(self, do: str, **request: Any) -> Any:
        process = self.process
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended with exit code {process.wait()}"}
        if "error" in answer:
            raise ContestantError(f"TVM: {answer['error']}; see {self.log}")
        return answer["ok"]
