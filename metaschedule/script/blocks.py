"""Declarations: buffers, and the heads of blocks and programs.

A block begins with its head (iterators, where, reads, writes, annotate, buffers, init), a program
with its annotations and buffers; `Head` collects them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import ir
from ..arith import simplify
from ..ir.printer import RESERVED
from .expressions import ExpressionReader, parts
from .source import ScriptSource


@dataclass(slots=True)
class Head:
    """What stands before the statements of a block, or of the program (`block` is then False)."""

    block: bool
    iters: list[ir.Iter] = field(default_factory=list)
    bindings: list[ir.Expr] = field(default_factory=list)
    predicate: list[ir.Expr] = field(default_factory=list)
    allocs: list[ir.Buffer] = field(default_factory=list)
    init: ir.Body = ()
    given: dict[str, Any] = field(default_factory=dict)  # reads, writes, annotations: at most once each


class Declarations(ExpressionReader):
    """Reads declarations. `places` remembers the syntax of nodes, to say where a mistake is."""

    def __init__(self, source: ScriptSource, outside: Mapping[str, Any]) -> None:
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

    def body(self, nodes: list[ast.stmt], head: Head | None = None) -> ir.Body:
        raise NotImplementedError  # Parser's; an init holds statements

    # --- buffers ---

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
        layout = self.layout(given, shape)
        return self.source.build(node, ir.Buffer, name, shape, dtype, scope, constant, data, layout)

    def layout(self, given: dict[str, ast.expr], shape: tuple[int, ...]) -> ir.Layout | None:
        if "strides" not in given and "offset" not in given:
            return None
        node = given["strides"] if "strides" in given else given["offset"]
        strides = self.static(given["strides"]) if "strides" in given else ir.dense_strides(shape)
        offset = self.static(given["offset"]) if "offset" in given else 0
        return self.source.build(node, ir.Layout, strides, offset)

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

    # --- heads ---

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
                raise self.error("buffers are made in the program or in a block, not in a loop", node)
            buffer = self.allocation(target := self.target(node), call, word)
            self.declare(target, node, buffer)
            head.allocs.append(buffer)
        elif isinstance(node, ast.Assign) and word in ir.ITER_KINDS:
            self.check_block(head, late, word, node).iters.append(self.iterator(node, head, call, word))
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

    def no_alias(self, node: ast.With) -> None:
        if node.items[0].optional_vars is not None:
            raise self.error("`as` gives nothing here: leave it out", node.items[0].optional_vars)
