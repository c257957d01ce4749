"""Statements of the script: the syntax tree of one function to a `Program`.

Read `Parser.program` first, then `Parser.statement`. A block begins with its head (iterators,
where, reads, writes, annotate, buffers, init), a program with its annotations and buffers; `Head`
collects them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import ir

try:  # TEMPORARY until arith exists
    from ..arith import block_signature, simplify
except ImportError:

    def simplify(e):
        return e


from ..ir.printer import RESERVED
from . import namespace
from .expressions import BINARY, Expressions, Value, parts, plain
from .source import Source

LOOPS = ("serial", "parallel", "vectorized", "unrolled", "bind")


@dataclass(slots=True)
class Head:
    """What stands before the statements of a block, or of the program (`block` is then False)."""

    block: bool
    iters: list[ir.Iter] = field(default_factory=list)
    bindings: list[ir.Expr] = field(default_factory=list)
    predicate: list[ir.Expr] = field(default_factory=list)
    allocs: list[ir.Buffer] = field(default_factory=list)
    init: ir.Body = ()
    given: dict[str, Any] = field(
        default_factory=dict
    )  # reads, writes, annotations: at most once each


class Parser(Expressions):
    """Reads one function. `places` remembers the syntax of nodes, to say where a mistake is."""

    def __init__(self, source: Source, outside: Mapping[str, Any]) -> None:
        super().__init__(source, outside)
        self.places: dict[Any, ast.AST] = {}

    # --- names ---

    @contextmanager
    def scope(self) -> Iterator[None]:
        outer = dict(self.names)
        yield
        self.ended |= self.names.keys() - outer.keys()
        self.names = outer

    def declare(self, name: str, node: ast.AST, meaning: ir.Expr | ir.Buffer) -> None:
        if name in RESERVED:
            raise self.error(f"{name} means something else in a script: choose another name", node)
        if name in self.names:
            raise self.error(f"{name} is already in use here: choose another name", node)
        self.names[name] = meaning
        if isinstance(meaning, ir.Buffer):
            self.places[meaning] = node

    # --- programs ---

    def program(self, node: ast.FunctionDef) -> ir.Program:
        inputs, outputs = self.parameters(node)
        if node.returns is not None:
            raise self.error(
                "a program returns nothing: declare a parameter T.Output", node.returns
            )
        head = Head(block=False)
        first = node.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        skip = 1 if documented and isinstance(first.value.value, str) else 0  # pyright: ignore[reportAttributeAccessIssue]
        body = self.body(node.body[skip:], head)
        result = ir.Program(
            node.name,
            tuple(inputs),
            tuple(outputs),
            body,
            tuple(head.allocs),
            head.given.get("annotate", {}),
        )
        self.places[result] = node
        return result

    def parameters(self, node: ast.FunctionDef) -> tuple[list[ir.Buffer], list[ir.Buffer]]:
        args = node.args
        if (
            extra := args.posonlyargs
            or args.kwonlyargs
            or [a for a in (args.vararg, args.kwarg) if a]
        ):
            raise self.error("parameters are plain: no *, / or ** among them", extra[0])
        defaults = [None] * (len(args.args) - len(args.defaults)) + args.defaults
        inputs: list[ir.Buffer] = []
        outputs: list[ir.Buffer] = []
        for arg, default in zip(args.args, defaults, strict=True):
            spec = arg.annotation or default
            if spec is None or (arg.annotation and default):
                raise self.error(f'declare it as in {arg.arg}: T.Tensor((4, 8), "float32")', arg)
            word = self.word(spec.func) if isinstance(spec, ast.Call) else None
            if word not in ("Tensor", "Output") or not isinstance(spec, ast.Call):
                raise self.error(f"{arg.arg} must be a T.Tensor(...) or a T.Output(...)", spec)
            buffer = self.allocation(arg.arg, spec, word)
            self.declare(arg.arg, arg, buffer)
            if word == "Tensor" and outputs:
                raise self.error("inputs come before outputs: move this parameter", arg)
            (inputs if word == "Tensor" else outputs).append(buffer)
        return inputs, outputs

    def allocation(self, name: str, node: ast.Call, word: str) -> ir.Buffer:
        """The buffer that a Tensor, Output, alloc or table declares."""
        given = self.arguments(node, word)
        shape = self.source.build(given["shape"], ir.check_shape, self.static(given["shape"]), name)
        dtype = self.dtype(given["dtype"]) if "dtype" in given else "float32"
        scope = self.string(given["scope"], "a scope") if "scope" in given else "global"
        constant = self.static(given["constant"]) if "constant" in given else False
        if not isinstance(constant, bool):
            raise self.error("constant is True or False", given["constant"])
        data = self.table(given["values"], shape, dtype) if word == "table" else None
        return self.source.build(node, ir.Buffer, name, shape, dtype, scope, constant, data)

    def table(self, node: ast.expr, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if isinstance(node, (ast.List, ast.Tuple)):
            values: list[Any] = [
                self.source.build(part, ir.const, self.element(part, dtype), dtype).value
                for part in node.elts
            ]
        else:
            data = self.static(node)
            if not isinstance(data, tuple):
                raise self.error("the values of a table are a flat list of numbers", node)
            values = [self.source.build(node, ir.const, value, dtype).value for value in data]
        size = int(np.prod(shape, dtype=object))
        if len(values) != size:
            raise self.error(f"{len(values)} values for shape {shape}, which has {size}", node)
        return np.array(values, dtype=ir.numpy_dtype(dtype)).reshape(shape)

    # --- bodies and heads ---

    def body(self, nodes: list[ast.stmt], head: Head | None = None) -> ir.Body:
        with self.scope():
            result: list[ir.Stmt] = []
            for node in nodes:
                if self.in_head(node, head, bool(result)) or isinstance(node, ast.Pass):
                    continue
                stmt = self.statement(node)
                self.places[stmt] = node
                result.append(stmt)
            return tuple(result)

    def in_head(self, node: ast.stmt, head: Head | None, late: bool) -> bool:
        """Whether `node` belongs to a head; if so it is read into `head`."""
        call: Any = None
        if isinstance(node, (ast.Assign, ast.Expr)):
            call = node.value
        elif isinstance(node, ast.With) and len(node.items) == 1:
            call = node.items[0].context_expr
        word = self.word(call.func) if isinstance(call, ast.Call) else None
        if word is None or word == "block":
            return False
        assert isinstance(call, ast.Call)
        if isinstance(node, ast.Assign) and word in ("alloc", "table"):
            if head is None:
                raise self.error(
                    "buffers are made in the program or in a block, not in a loop", node
                )
            buffer = self.allocation(target := self.target(node), call, word)
            self.declare(target, node, buffer)
            head.allocs.append(buffer)
        elif isinstance(node, ast.Assign) and word in ir.ITER_KINDS:
            self.check_block(head, late, word, node).iters.append(
                self.iterator(node, head, call, word)
            )
        elif isinstance(node, ast.With) and word == "init":
            self.check_block(head, late, word, node)
            self.once(head, word, node, self.arguments(call, word))
            self.no_alias(node)
            assert head is not None
            head.init = self.body(node.body)
            if not head.init:
                raise self.error("T.init is empty: leave it out", node)
        elif isinstance(node, ast.Expr) and word == "where":
            condition = self.condition(self.arguments(call, word)["condition"])
            self.check_block(head, late, word, node).predicate.append(condition)
            self.places[condition] = node
        elif isinstance(node, ast.Expr) and word in ("reads", "writes"):
            self.check_block(head, late, word, node)
            regions = self.arguments(call, word).get("regions", ())
            self.once(head, word, node, tuple([self.region(r) for r in regions]))
        elif isinstance(node, ast.Expr) and word == "annotate":
            if head is None or late:
                raise self.error("T.annotate stands at the start of a block or program", node)
            notes = self.annotations(self.arguments(call, word)["annotations"])
            self.once(head, word, node, notes)
        else:
            return False
        return True

    def check_block(self, head: Head | None, late: bool, word: str, node: ast.stmt) -> Head:
        if head is None or not head.block or late:
            raise self.error(f"T.{word} stands at the start of a block", node)
        return head

    def once(self, head: Head | None, word: str, node: ast.AST, value: Any) -> None:
        assert head is not None
        if word in head.given:
            raise self.error(f"T.{word} is given twice", node)
        head.given[word] = value

    def iterator(self, node: ast.Assign, head: Head | None, call: ast.Call, kind: str) -> ir.Iter:
        assert head is not None
        given = self.arguments(call, kind)
        extent = self.integer(given["extent"], "an extent")
        head.bindings.append(self.integer(given["binding"], "a binding"))
        name = self.target(node)
        var = ir.Var(name)
        self.declare(name, node, var)
        result = ir.Iter(var, extent, kind)
        self.places[result] = node
        return result

    def target(self, node: ast.Assign) -> str:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id
        raise self.error("declare one name at a time", node)

    def annotations(self, node: ast.expr) -> ir.Annotations:
        value = self.static(node)
        if not isinstance(value, dict):
            raise self.error("annotations are a dictionary with string keys", node)
        return value

    def region(self, node: ast.expr) -> ir.Region:
        if isinstance(node, ast.Name):
            return self.buffer(node).whole()
        if not isinstance(node, ast.Subscript):
            raise self.error("expected a region of a buffer, as in A[i, 0 : T.size(8)]", node)
        buffer = self.buffer(node.value)
        dims = parts(node)
        if len(dims) != len(buffer.shape):
            raise self.error(
                f"{buffer.name} has {len(buffer.shape)} dimension(s), indexed with {len(dims)}",
                node,
            )
        ranges = [self.span(dim, buffer.shape[at]) for at, dim in enumerate(dims)]
        return ir.Region(buffer, tuple(ranges))

    def span(self, node: ast.expr, length: int) -> tuple[ir.Expr, ir.Expr]:
        """First index and number of indices of one dimension of a region."""
        if not isinstance(node, ast.Slice):
            return self.integer(node, "an index"), ir.const(1)
        if node.step is not None:
            raise self.error("a region has no step", node.step)
        start = self.integer(node.lower, "an index") if node.lower else ir.const(0)
        if isinstance(node.upper, ast.Call) and self.word(node.upper.func) == "size":
            extent = self.arguments(node.upper, "size")["extent"]
            return start, self.integer(extent, "a size")
        stop = self.integer(node.upper, "an index") if node.upper else ir.const(length)
        return start, self.source.build(node, lambda: simplify(stop - start))

    # --- statements ---

    def statement(self, node: ast.stmt) -> ir.Stmt:
        if isinstance(node, ast.For):
            return self.loop(node)
        if isinstance(node, ast.With):
            return self.block(node)
        if isinstance(node, ast.Assign):
            return self.assignment(node)
        if isinstance(node, ast.AugAssign):
            return self.augmented(node)
        if isinstance(node, ast.If):
            cond = self.condition(node.test)
            return ir.If(cond, self.body(node.body), self.body(node.orelse))
        if isinstance(node, ast.While):
            if node.orelse:
                raise self.error("a loop has no else", node.orelse[0])
            return ir.While(self.condition(node.test), self.body(node.body))
        if isinstance(node, ast.Assert):
            message = self.string(node.msg, "a message") if node.msg else ""
            return ir.Assert(self.condition(node.test), message)
        if isinstance(node, ast.Expr):
            word = self.word(node.value.func) if isinstance(node.value, ast.Call) else None
            hint = f"; write {namespace.form(word)}" if word else ": store it into a buffer"
            raise self.error(f"the value of this expression is not used{hint}", node)
        kind = type(node).__name__
        raise self.error(f"{kind} is not part of the script{STATEMENT_HINTS.get(kind, '')}", node)

    def assignment(self, node: ast.Assign) -> ir.Stmt:
        if len(node.targets) != 1:
            raise self.error("store into one buffer at a time", node)
        target = node.targets[0]
        if not isinstance(target, (ast.Tuple, ast.List)):
            buffer, indices = self.place(target)
            return self.store(buffer, indices, node.value, self.value(node.value))
        values = node.value.elts if isinstance(node.value, ast.Tuple) else []
        if len(values) != len(target.elts) or len(values) < 2:
            raise self.error(f"{len(target.elts)} targets need as many values, by commas", node)
        stores: list[ir.Store] = []
        for one, value in zip(target.elts, values, strict=True):
            buffer, indices = self.place(one)
            stores.append(self.store(buffer, indices, value, self.value(value)))
        return ir.TupleStore(tuple(stores))

    def augmented(self, node: ast.AugAssign) -> ir.Stmt:
        op = BINARY.get(type(node.op))
        if op is None:
            raise self.error("this operator has no assignment form here: write it out", node)
        buffer, indices = self.place(node.target)
        value = self.binary(node, op, ir.Load(buffer, indices), self.value(node.value))
        return self.store(buffer, indices, node.value, value)

    def place(self, node: ast.expr) -> tuple[ir.Buffer, tuple[ir.Expr, ...]]:
        """The element that an assignment stores to."""
        if isinstance(node, ast.Subscript) and not isinstance(node.value, ast.Subscript):
            buffer = self.buffer(node.value)
            return buffer, self.indices(buffer, node)
        if isinstance(node, ast.Name) and isinstance(self.names.get(node.id), ir.Buffer):
            raise self.error(f"store to an element, as in {node.id}[i] = ...", node)
        raise self.error(
            "a script has no local variables: write the expression where it is used, or store it "
            "into a buffer made with T.alloc",
            node,
        )

    def store(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], node: ast.expr, value: Value
    ) -> ir.Store:
        e = self.typed(node, value, buffer.dtype)
        if e.dtype != buffer.dtype:
            raise self.error(
                f"{buffer.name} holds {buffer.dtype} and the value is {e.dtype}: write "
                f'T.cast(..., "{buffer.dtype}")',
                node,
            )
        return ir.Store(buffer, indices, e)

    def block(self, node: ast.With) -> ir.Stmt:
        call = node.items[0].context_expr
        word = self.word(call.func) if isinstance(call, ast.Call) else None
        if word != "block" or len(node.items) != 1 or not isinstance(call, ast.Call):
            raise self.error('`with` opens a block: write with T.block("name"):', call)
        self.no_alias(node)
        name = self.string(self.arguments(call, "block")["name"], "the name of a block")
        head = Head(block=True)
        body = self.body(node.body, head)
        result = ir.Block(
            name,
            tuple(head.iters),
            tuple(head.bindings),
            head.given.get("reads", ()),
            head.given.get("writes", ()),
            body,
            head.init,
            tuple(head.predicate),
            tuple(head.allocs),
            head.given.get("annotate", {}),
        )
        if "reads" in head.given and "writes" in head.given:
            return result
        reads, writes = block_signature(result)
        reads, writes = head.given.get("reads", reads), head.given.get("writes", writes)
        return ir.changed(result, reads=reads, writes=writes)

    def no_alias(self, node: ast.With) -> None:
        if node.items[0].optional_vars is not None:
            raise self.error("`as` gives nothing here: leave it out", node.items[0].optional_vars)

    # --- loops ---

    def loop(self, node: ast.For) -> ir.Stmt:
        if node.orelse:
            raise self.error("a loop has no else", node.orelse[0])
        call = node.iter
        if not isinstance(call, ast.Call):
            raise self.error("loop over range(n), T.grid(n, m), T.parallel(n) or the like", call)
        if isinstance(call.func, ast.Name) and call.func.id == "range":
            return self.range_loop(node, call)
        word = self.word(call.func)
        if word == "grid":
            return self.grid(node, call)
        if word not in LOOPS:
            raise self.error("loop over range(n), T.grid(n, m), T.parallel(n) or the like", call)
        given = self.arguments(call, word)
        extent = self.integer(given["extent"], "an extent")
        kind = self.string(given["axis"], "an axis") if word == "bind" else word
        if word == "bind" and kind not in ir.GPU_AXES:
            raise self.error(
                f"unknown axis {kind!r}; known are {', '.join(ir.GPU_AXES)}", given["axis"]
            )
        notes = self.annotations(given["annotations"]) if "annotations" in given else {}
        var = ir.Var(self.loop_names(node, 1)[0])
        with self.scope():
            self.declare(var.name, node.target, var)
            return ir.For(var, extent, self.body(node.body), kind, notes)

    def range_loop(self, node: ast.For, call: ast.Call) -> ir.Stmt:
        if call.keywords or not 1 <= len(call.args) <= 2:
            raise self.error("write range(stop) or range(start, stop); scale the variable", call)
        bounds = [self.integer(arg, "a bound") for arg in call.args]
        var = ir.Var(self.loop_names(node, 1)[0])
        meaning: ir.Expr = var
        extent = bounds[-1]
        if len(bounds) == 2:
            extent = self.source.build(call, lambda: simplify(bounds[1] - bounds[0]))
            meaning = self.source.build(call, lambda: var + bounds[0])
        with self.scope():
            self.declare(var.name, node.target, meaning)
            return ir.For(var, extent, self.body(node.body))

    def grid(self, node: ast.For, call: ast.Call) -> ir.Stmt:
        nodes = self.arguments(call, "grid").get("extents", ())
        if not nodes:
            raise self.error("T.grid needs an extent", call)
        extents = [self.integer(arg, "an extent") for arg in nodes]
        variables = [ir.Var(name) for name in self.loop_names(node, len(extents))]
        with self.scope():
            for var in variables:
                self.declare(var.name, node.target, var)
            body = self.body(node.body)
        for var, extent in reversed(list(zip(variables, extents, strict=True))):
            loop = ir.For(var, extent, body)
            self.places[loop] = node
            body = (loop,)
        return body[0]

    def loop_names(self, node: ast.For, count: int) -> list[str]:
        target = node.target
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        found = [part.id for part in names if isinstance(part, ast.Name)]
        if len(found) != len(names) or len(names) != count:
            raise self.error(f"this loop needs {count} variable name(s)", target)
        return found


STATEMENT_HINTS = {
    "Return": ": a program stores into its outputs",
    "FunctionDef": ": a program is one function",
    "AnnAssign": ": store into a buffer made with T.alloc",
    "Break": ": use a while loop with a condition",
    "Continue": ": use an if",
    "Import": ": nothing is executed",
    "ImportFrom": ": nothing is executed",
    "Raise": ": use assert",
    "Try": ": use assert",
    "Delete": "",
}


__all__ = ["Parser", "plain"]
