"""Statements of the script: the syntax tree of one function to a `Program`.

Read `Parser.program` first, then `Parser.statement`.
"""

from __future__ import annotations

import ast

from .. import ir
from ..arith import block_signature, simplify
from . import namespace
from .blocks import Declarations, Head
from .data import BINARY
from .expressions import Value

EXPRESSION_WORDS = (*ir.FUNCTIONS, *ir.DTYPES, "select", "cast", "neg", "min", "max", "instruction")
LOOPS = ("serial", "parallel", "vectorized", "unrolled", "bind")


class Parser(Declarations):
    """Reads one function."""

    # --- programs ---

    def program(self, node: ast.FunctionDef) -> ir.Program:
        inputs, outputs = self.parameters(node)
        if node.returns is not None:
            raise self.error("a program returns nothing: declare a parameter T.Output", node.returns)
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
        if extra := args.posonlyargs or args.kwonlyargs or [a for a in (args.vararg, args.kwarg) if a]:
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

    # --- statements ---

    def statement(self, node: ast.stmt) -> ir.Stmt:
        if isinstance(node, ast.For):
            return self.loop(node)
        if isinstance(node, ast.With):
            return self.block(node)
        if isinstance(node, ast.Assign):
            return self.assignment(node)
        if isinstance(node, ast.AugAssign):
            return self.augmented_store(node)
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
            stored = word is None or word in EXPRESSION_WORDS
            hint = ": store it into a buffer" if stored else f"; write {namespace.form(word or '')}"
            raise self.error(f"the value of this expression is not used{hint}", node)
        what, _, instead = UNSUPPORTED.get(type(node), "this statement").partition(":")
        colon = ":" if instead else ""
        raise self.error(f"{what} is not part of the script{colon}{instead}", node)

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

    def augmented_store(self, node: ast.AugAssign) -> ir.Stmt:
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
        if isinstance(node, ast.Subscript):
            raise self.error("write all indices in one pair of brackets, as in A[i, j]", node)
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
        e = self.convert(node, value, buffer.dtype)
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
        return ir.replace_fields(result, reads=reads, writes=writes)

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
            raise self.error(f"unknown axis {kind!r}; known are {', '.join(ir.GPU_AXES)}", given["axis"])
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


UNSUPPORTED: dict[type[ast.stmt], str] = {
    ast.Return: "return: a program stores into its outputs",
    ast.FunctionDef: "a function: a program is one function",
    ast.ClassDef: "a class: a program is one function",
    ast.AnnAssign: "an annotated variable: store into a buffer made with T.alloc",
    ast.Break: "break: use while with a condition",
    ast.Continue: "continue: use if",
    ast.Import: "import: nothing is executed",
    ast.ImportFrom: "import: nothing is executed",
    ast.Raise: "raise: use assert",
    ast.Try: "try: use assert",
    ast.Match: "match: use if and elif",
    ast.Delete: "del: buffers live as long as their block",
    ast.Global: "global: everything is a buffer",
}
