"""What the views say of a database, as plain data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

import metaschedule as ms
from metaschedule.dashboard.figures import tables_of
from metaschedule.dashboard.history import find_leader, thin
from metaschedule.dashboard.kernel import distinct
from metaschedule.dashboard.machine_code import find_inner_loop
from metaschedule.dashboard.report import collect
from metaschedule.dashboard.views import view
from metaschedule.database import Database, Record, TuningRun, open
from metaschedule.measure import WorkerNode
from metaschedule.schedule import Trace
from metaschedule.target import resolve
from tests.dashboard.databases import copy_of_real_run, many_records


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return open(copy_of_real_run(tmp_path_factory.mktemp("views")), readonly=True)


def place_of(db: Database) -> str:
    first = db.summaries()[0]
    return f"{first.workload}/{quote(first.target, safe='')}"


def test_runs_of_one_call_are_one_row(db: Database) -> None:
    data = view(db, "runs")
    (call,) = data["calls"]
    assert call["label"] == "a small model"
    assert (call["programs"], call["trials"], call["budget"], call["running"]) == (2, 16, 16, False)
    assert len(data["programs"]) == data["total_programs"] == 2


def test_a_run_has_its_trials_and_the_best_so_far(db: Database) -> None:
    run = db.runs()[0]
    data = view(db, f"run/{run.uid}")
    trials = [r for r in db.records(run=run.uid) if not r.confirmed]
    assert data["points"]["uid"] == [r.uid for r in trials]
    assert data["course"]["latency"] == sorted(data["course"]["latency"], reverse=True)
    assert data["course"]["latency"][-1] == min(r.latency for r in trials if r.latency)
    assert set(data["seconds"]) == {"search", "model", "build", "run", "confirm"}
    assert not data["running"]
    assert data["left"] is None


def test_a_model_sums_what_its_kernels_take(db: Database) -> None:
    (call,) = view(db, "runs")["calls"]
    data = view(db, f"model/{call['call']}")
    assert {k["weight"] for k in data["kernels"]} == {3.0, 1.0}
    known = [k for k in data["kernels"] if k["untuned"] is not None]  # on a disturbed machine it may not be
    assert data["compared"] == len(known)
    assert sum(k["trials"] for k in data["kernels"]) == call["trials"]
    assert (data["after"] or 0) == pytest.approx(sum(k["weight"] * k["latency"] for k in known))


def test_sums_are_of_kernels_that_are_known_before_and_after() -> None:
    programs = [ms.workloads.create("GMM", b=1, n=8, m=8, k=size) for size in (8, 16)]
    with open(None) as db:
        for n, (program, untuned) in enumerate(zip(programs, (3e-3, None), strict=True)):
            trace = ms.space.default().sample(program, 0).trace
            record = Record.of(program, resolve("native"), trace, "ok", latency=1e-3, run=str(n))
            run = TuningRun(
                str(n), db.add_program(program), record.target, "cpu", 0, "a call", weight=2, untuned=untuned
            )
            db.add_all([record], run)
        data = view(db, "model/a call")
        table = tables_of(db)
    assert (data["compared"], data["before"], data["after"]) == (1, 6e-3, 2e-3)
    assert "Before 6000.0 us, after 2000.0 us (1 of 2 kernels)" in table


def test_a_run_leads_to_its_own_best_though_another_run_found_a_faster_one() -> None:
    program, target = ms.workloads.create("GMM", b=1, n=8, m=8, k=8), resolve("native")
    traces = [ms.space.default().sample(program, seed).trace for seed in range(2)]

    def record_of(run: str, trace: Trace, latency: float, confirmed: bool = False) -> Record:
        return Record.of(program, target, trace, "ok", latency=latency, run=run, confirmed=confirmed)

    with open(None) as db:
        for run, records in {
            "slow": [record_of("slow", traces[0], 2e-3), again := record_of("slow", traces[0], 3e-3, True)],
            "fast": [record_of("fast", traces[1], 1e-3, True)],
        }.items():
            db.add_all(records, TuningRun(run, db.add_program(program), target.key, "cpu", 0, run))
        assert (view(db, "run/slow")["best"], view(db, "run/slow")["leader"]) == (3e-3, again.uid)
        assert (view(db, "run/fast")["best"], view(db, "run/fast")["leader"]) == (1e-3, None)
        place = f"kernel/{again.workload}/{quote(target.key, safe='')}"
        data = collect(db, "slow")
        found = {name: data[name]["record"]["latency"] for name in data if place in name}
        assert found == {place: 1e-3, f"{place}/{again.uid}": 3e-3}


def test_a_candidate_that_failed_once_leads_nothing() -> None:
    program, target = ms.workloads.create("GMM", b=1, n=8, m=8, k=8), resolve("native")
    first, second = (ms.space.default().sample(program, seed).trace for seed in range(2))
    good, other = (Record.of(program, target, t, "ok", latency=s) for t, s in ((first, 1e-3), (second, 2e-3)))
    failed = replace(good, outcome="crash", latency=None)
    assert find_leader([good, other]) == good
    assert find_leader([good, other, failed]) == other
    assert find_leader([replace(good, disturbed=1.0), other]) == other
    assert find_leader([failed]) is None


def test_a_kernel_that_memory_bounds_has_a_bandwidth_and_nothing_left_to_gain() -> None:
    """The peak of computing says nothing of it."""
    product, softmax = ms.workloads.create("GMM"), ms.workloads.create("SFM", shape=(64, 64))
    with open(None) as db:
        for n, program in enumerate([product, softmax]):
            trace = ms.space.default().sample(program, 0).trace
            record = Record.of(program, resolve("native"), trace, "ok", latency=1e-3, run=str(n))
            run = TuningRun(
                str(n), db.add_program(program), record.target, "cpu", 0, "a call", details={"peak": 100.0}
            )
            db.add_all([record], run)
        of_product, of_softmax = (view(db, f"run/{n}") for n in range(2))
        kernels = {k["program"]: k for k in view(db, "model/a call")["kernels"]}
    assert of_product["bandwidth"] is None
    assert of_product["gflops"] == pytest.approx(2 * 128**3 / 1e-3 / 1e9)
    assert of_softmax["bandwidth"] == pytest.approx(2 * 64 * 64 * 4 / 1e-3 / 1e9)
    assert kernels["GMM"]["may_win"] == pytest.approx(1e-3 - 2 * 128**3 / 90e9)
    assert kernels["SFM"]["may_win"] is None


def test_a_kernel_replays_step_by_step_to_its_program(db: Database) -> None:
    place = place_of(db)
    kernel, steps = view(db, f"kernel/{place}"), view(db, f"steps/{place}")
    assert [step["text"] for step in steps] == kernel["trace"]
    lines = kernel["source"]
    for step in steps:
        assert (step["lines"] is None) == (not step["new"])
        lines = step["lines"] or lines
    assert lines == kernel["scheduled"]
    assert kernel["record"]["latency"] == min(r["latency"] for r in kernel["others"] if r["confirmed"])


def test_code_is_for_the_machine_of_the_record(db: Database) -> None:
    data = view(db, f"code/{place_of(db)}")
    assert "error" not in data
    loop = data["loop"]
    assert loop is None or 0 <= loop["first"] < loop["last"] < len(data["lines"])


def test_a_space_counts_what_was_drawn(db: Database) -> None:
    place = place_of(db)
    data = view(db, f"space/{place}")
    first = db.summaries()[0]
    assert sum(s["drawn"] for s in data["sketches"]) == first.outcomes.total() > 0
    assert data["sketches"][0]["best"] == min(s["best"] for s in data["sketches"] if s["best"])


def test_two_records_runs_and_spaces_compare(db: Database) -> None:
    first = db.summaries()[0]
    a, b = (r.uid for r in db.ranked(first.workload, first.target, limit=2))
    records = view(db, f"compare/records/{a}/{b}")
    assert [row[0] for row in records["trace"] if row[0] is not None] == view(
        db, f"kernel/{first.workload}/{quote(first.target, safe='')}/{a}"
    )["trace"]
    runs = [run.uid for run in db.runs()]
    assert view(db, f"compare/runs/{runs[0]}/{runs[0]}")["faster"] == 1
    spaces = view(db, f"compare/spaces/{first.workload}/{quote(first.target, safe='')}/cpu/cpu")
    assert spaces["sides"][0] == spaces["sides"][1]
    best = db.best(first.workload, first.target)
    assert best is not None
    assert spaces["sides"][0]["best"] == best.latency


def test_decisions_have_the_names_of_the_trace(db: Database) -> None:
    place = place_of(db)
    kernel, space = view(db, f"kernel/{place}"), view(db, f"space/{place}")
    for name in kernel["decisions"]["columns"]:
        drawn = name.partition(" ")[0]
        assert any(
            drawn in line.partition(" = ")[0].split(", ") and "sch.sample" in line for line in kernel["trace"]
        )
    for sketch in space["sketches"]:
        assert len(sketch["decisions"]) == len(sketch["sites"])


NOWHERE = "nothing run run/x model/x kernel/x/y space/x/y runs/1 compare/records/x/y code/../etc"


@pytest.mark.parametrize("path", ["", *NOWHERE.split()])
def test_addresses_of_nothing_are_refused(db: Database, path: str) -> None:
    with pytest.raises(LookupError):
        view(db, path)


def test_records_without_runs_are_shown(tmp_path: Path) -> None:
    """Versions before kept no runs: what can be told from records is."""
    path = copy_of_real_run(tmp_path)
    with open(path) as db:
        run = db.runs()[0].uid
        count = sum(not r.confirmed for r in db.records(run=run))
        db.store.delete([("DELETE FROM runs", {})])
        data = view(db, f"run/{run}")
    assert data["trials"] == count
    assert data["stopped"] == ""


def test_many_records_are_thinned_and_the_leaders_kept(tmp_path: Path) -> None:
    with open(many_records(tmp_path / "many.db", 5000)) as db:
        data = view(db, "run/run")
    latencies = data["points"]["latency"]
    assert data["thinned"]
    assert data["trials"] == 5000
    assert min(t for t in latencies if t) == data["best"]
    assert len(json.dumps(data)) < 2_000_000


def test_thin_keeps_what_fits() -> None:
    assert thin([], 10) == []


def test_candidates_that_were_measured_again_keep_the_place_of_their_first_record(db: Database) -> None:
    record = next(r for r in db.records(outcome="ok"))
    fast, other, again = (
        replace(record, uid=name, decisions=decisions)
        for name, decisions in (("fast", "1"), ("other", "2"), ("again", "1"))
    )
    assert [r.uid for r in distinct([fast, other, again])] == ["fast", "other"]


def test_runners_of_a_cluster_are_told(tmp_path: Path) -> None:
    node = WorkerNode("rack-1", ms.target.resolve("x86-64-v3,cores=8"), "0.1", trials=10, disturbed=0.1)
    path = copy_of_real_run(tmp_path)
    with open(path) as db:
        run = db.runs()[0]
        db.add_all([], replace(run, details={**run.details, "runners": [node.as_data()]}))
        (runner,) = view(db, f"run/{run.uid}")["runners"]
    assert (runner["name"], runner["kind"], runner["disturbed"]) == ("rack-1", "x86-64-v3, 8 cores", 0.1)


ARM = """f:
.LBB0_1:
\tldr\tq0, [x1], #16
\tfmla\tv1.4s, v0.4s, v2.s[0]
\tstr\tq1, [x2]
\tb.ne\t.LBB0_1
\tret
"""


def test_inner_loops_of_arm_are_found() -> None:
    loop = find_inner_loop(ARM)
    assert loop is not None
    assert (loop.first, loop.last, loop.products, loop.loads, loop.stores) == (1, 5, 1, 1, 1)
    assert find_inner_loop("f:\n\tret\n") is None


ROTATED = """f:
	movl	$8, %ecx
	jmp	.LBB0_2
	.p2align	4
.LBB0_1:
	vaddps	%ymm0, %ymm1, %ymm1
	decl	%ecx
	je	.LBB0_5
.LBB0_2:
	testl	%ecx, %eax
	je	.LBB0_1
	vxorps	%xmm0, %xmm0, %xmm0
.LBB0_3:
	vfmadd231ps	(%rdi), %ymm0, %ymm1
	addq	$32, %rdi
	cmpq	%rdi, %rsi
	jne	.LBB0_3
	jmp	.LBB0_1
.LBB0_5:
	ret
"""


def test_the_inner_of_rotated_loops_is_found() -> None:
    """The latch of the outer one comes first, so that the only jump back to it goes over half of its body."""
    loop = find_inner_loop(ROTATED)
    assert loop is not None
    assert (loop.first, loop.last, loop.instructions, loop.products) == (12, 16, 4, 1)


def test_a_space_decodes_one_trace_of_each_sketch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 records they would take minutes."""
    decoded: list[str] = []
    decode = Trace.from_json
    with open(many_records(tmp_path / "many.db", 500)) as db:
        place = place_of(db)
        monkeypatch.setattr(Trace, "from_json", lambda text: [decoded.append(text), decode(text)][1])
        (sketch,) = view(db, f"space/{place}")["sketches"]
    assert sketch["decisions"][0]["values"] == [
        ["[4, 2]", 450, pytest.approx(1e-3 / 499)],
        ["[2, 4]", 50, None],
    ]
    assert len(decoded) <= 3
