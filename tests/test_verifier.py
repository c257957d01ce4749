"""One test per rule, with the whole message."""

# ruff: noqa: E501  (messages as they print)
from __future__ import annotations

import textwrap

import numpy as np
import pytest

from metaschedule import ir
from metaschedule.errors import InternalError, VerifyError
from metaschedule.script import parse
from metaschedule.verifier import verify

i, j = ir.Var("i"), ir.Var("j")
v, w = ir.Var("v"), ir.Var("w")
A = ir.Buffer("A", (8,), "float32")
B = ir.Buffer("B", (8,), "float32")
L = ir.Buffer("L", (8,), "float32")
W = ir.Buffer("W", (2,), "float32", data=np.zeros(2, "float32"))
zero = ir.const(0.0)


def program(*body: ir.Stmt, allocs: tuple[ir.Buffer, ...] = ()) -> ir.Program:
    return ir.Program("f", (A,), (B,), (*body, ir.Store(B, (ir.const(7),), zero)), allocs)


def block(*body: ir.Stmt, **fields: object) -> ir.Block:
    """A block over `v` in 0..7, bound to `i`."""
    given: dict[str, object] = {
        "iters": (ir.Iter(v, ir.const(8)),),
        "bindings": (i,),
        "reads": (A.region(v),),
        "writes": (B.region(v),),
        "body": body or (ir.Store(B, (v,), A[v]),),
    }
    return ir.Block("b", **(given | fields))  # pyright: ignore[reportArgumentType]


def loop(*body: ir.Stmt, **fields: object) -> ir.For:
    return ir.For(**({"var": i, "extent": ir.const(8), "body": body} | fields))  # pyright: ignore[reportArgumentType]


def refuses(p: ir.Program, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(p)
    assert str(caught.value) == textwrap.dedent(message).strip()


def refuses_text(text: str, message: str) -> None:
    """Refusal of a script, without the place that the parser adds."""
    refuses(parse(textwrap.dedent(text), check=False), message)


def accepts(text: str) -> None:
    parse(textwrap.dedent(text))


def test_variable_out_of_scope() -> None:
    refuses(
        program(loop(ir.Store(B, (i,), zero)), ir.Store(B, (i,), zero)),
        """
        variable i is used outside its scope

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                B[i] = 0.0
            B[i] = 0.0
            ^^^^^^^^^^  uses i
            B[7] = 0.0
        """,
    )


def test_variable_never_declared() -> None:
    refuses(
        program(loop(ir.Store(B, (j,), zero))),
        """
        variable j is used and never declared

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                B[j] = 0.0
                ^^^^^^^^^^  uses j
            B[7] = 0.0
        """,
    )


def test_variable_declared_twice() -> None:
    refuses(
        program(loop(ir.Store(B, (i,), zero)), loop(ir.Store(B, (i,), zero))),
        """
        variable i is declared twice

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                B[i] = 0.0
            for i in range(8):
            ^^^^^^^^^^^^^^^^^^  again here
                B[i] = 0.0
            B[7] = 0.0

        help: make a new Var
        """,
    )


def test_variable_of_another_dtype() -> None:
    refuses(
        program(loop(var=ir.Var("i", "int32"))),
        """
        variable i is int32, not int64

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
            ^^^^^^^^^^^^^^^^^^  declared here
                pass
            B[7] = 0.0
        """,
    )


def test_iterator_declared_twice() -> None:
    refuses(
        program(loop(block(iters=(ir.Iter(v, ir.const(8)), ir.Iter(v, ir.const(8))), bindings=(i, i)))),
        """
        variable v is declared twice

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    v_1 = T.spatial(8, i)
                    ^^^^^^^^^^^^^^^^^^^^^  again here
                    T.reads(A[v_1])
                    T.writes(B[v_1])
                    B[v_1] = A[v_1]
            B[7] = 0.0

        help: make a new Var
        """,
    )


def test_loop_variable_in_a_block() -> None:
    refuses(
        program(loop(block(ir.Store(B, (i,), A[v])))),
        """
        block b uses i, a variable from outside it

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    B[i] = A[v]
                    ^^^^^^^^^^^  uses i
            B[7] = 0.0

        help: a block speaks of its own iterators only: bind one to that variable
        """,
    )


def test_loop_variable_in_a_signature() -> None:
    refuses(
        program(loop(block(reads=(A.region(i),)))),
        """
        block b uses i, a variable from outside it

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  uses i
                    v = T.spatial(8, i)
                    T.reads(A[i])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0

        help: a block speaks of its own iterators only: bind one to that variable
        """,
    )


def test_loop_variable_in_an_init() -> None:
    refuses(
        program(loop(block(iters=(ir.Iter(v, ir.const(8), "reduce"),), init=(ir.Store(B, (i,), zero),)))),
        """
        block b uses i, a variable from outside it

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.reduce(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    with T.init():
                        B[i] = 0.0
                        ^^^^^^^^^^  uses i
                    B[v] = A[v]
            B[7] = 0.0

        help: a block speaks of its own iterators only: bind one to that variable
        """,
    )


def test_iterator_in_a_binding() -> None:
    refuses(
        program(loop(block(iters=(ir.Iter(v, ir.const(8)), ir.Iter(w, ir.const(8))), bindings=(i, v)))),
        """
        variable v is used outside its scope

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    w = T.spatial(8, v)
                    ^^^^^^^^^^^^^^^^^^^  uses v
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_iterator_in_a_predicate() -> None:
    refuses(
        program(loop(block(predicate=(v < 3,)))),
        """
        variable v is used outside its scope

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.where(v < 3)
                    ^^^^^^^^^^^^^^  uses v
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_undeclared_buffer() -> None:
    refuses(
        program(loop(ir.Store(B, (i,), ir.Buffer("C", (8,))[i]))),
        """
        buffer C is not declared

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                B[i] = C[i]
                ^^^^^^^^^^^  reads
            B[7] = 0.0

        help: add it to inputs, outputs or allocs
        """,
    )


def test_store_to_an_undeclared_buffer() -> None:
    refuses(
        program(loop(ir.Store(ir.Buffer("C", (8,)), (i,), zero))),
        """
        buffer C is not declared

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                C[i] = 0.0
                ^^^^^^^^^^  writes
            B[7] = 0.0

        help: add it to inputs, outputs or allocs
        """,
    )


def test_buffer_of_another_block() -> None:
    refuses(
        program(loop(block(allocs=(L,))), ir.Store(L, (ir.const(0),), zero)),
        """
        buffer L is used outside the block that allocates it

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    L = T.alloc((8,), "float32")
                    B[v] = A[v]
            L[0] = 0.0
            ^^^^^^^^^^  writes
            B[7] = 0.0
        """,
    )


def test_buffer_declared_twice() -> None:
    refuses(
        program(allocs=(L, L)),
        """
        buffer L is declared twice

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            L = T.alloc((8,), "float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^  the same buffer
            L_1 = T.alloc((8,), "float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  the same buffer
            B[7] = 0.0
        """,
    )


def test_undeclared_buffer_in_a_signature() -> None:
    refuses(
        program(loop(block(reads=(A.region(v), ir.Buffer("C", ()).whole())))),
        """
        the signature of block b names C, not declared here

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  here
                    v = T.spatial(8, i)
                    T.reads(A[v], C[()])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_store_to_an_input() -> None:
    refuses(
        program(loop(ir.Store(A, (i,), zero))),
        """
        A is an input and cannot be written

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                A[i] = 0.0
                ^^^^^^^^^^  writes
            B[7] = 0.0

        help: use an output
        """,
    )


def test_store_to_a_table() -> None:
    refuses(
        program(ir.Store(W, (ir.const(0),), zero), allocs=(W,)),
        """
        W is a table and cannot be written

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            W = T.table([0.0, 0.0], (2,), "float32")
            W[0] = 0.0
            ^^^^^^^^^^  writes
            B[7] = 0.0

        help: use a buffer
        """,
    )


def test_wrong_number_of_indices() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0), ir.const(0)), zero)),
        """
        B has 1 dimension(s), indexed with 2

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0, 0] = 0.0
            ^^^^^^^^^^^^^  writes
            B[7] = 0.0
        """,
    )


def test_wrong_number_of_indices_of_a_load() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Load(A, ()))),
        """
        A has 1 dimension(s), indexed with 0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = A[()]
            ^^^^^^^^^^^^  reads
            B[7] = 0.0
        """,
    )


def test_wrong_number_of_ranges() -> None:
    refuses(
        program(loop(block(reads=(ir.Region(A, ()),)))),
        """
        the signature of block b gives A 0 ranges

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  here
                    v = T.spatial(8, i)
                    T.reads(A[()])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_value_of_another_dtype() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.const(1))),
        """
        B holds float32 and the value is int64

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.int64(1)
            ^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0

        help: cast the value
        """,
    )


def test_condition_not_bool() -> None:
    refuses(
        program(ir.If(ir.const(1), ())),
        """
        the condition must be bool, got int64: 1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            if 1:
            ^^^^^  here
                pass
            B[7] = 0.0
        """,
    )


def test_while_condition_not_bool() -> None:
    refuses(
        program(ir.While(ir.const(1.0), ())),
        """
        the condition must be bool, got float32: 1.0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            while 1.0:
            ^^^^^^^^^^  here
                pass
            B[7] = 0.0
        """,
    )


def test_assertion_not_bool() -> None:
    refuses(
        program(ir.Assert(ir.const(1.0))),
        """
        the condition must be bool, got float32: 1.0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            assert 1.0
            ^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_predicate_not_bool() -> None:
    refuses(
        program(loop(block(predicate=(ir.const(1),)))),
        """
        a predicate must be bool, got int64: 1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.where(1)
                    ^^^^^^^^^^  here
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_select_condition_not_bool() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Select(ir.const(1), zero, zero, "float32"))),
        """
        the condition of a select must be bool, got int64: 1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.select(1, 0.0, 0.0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_select_branches_differ() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Select(ir.const(True), zero, ir.const(1), "float32"))),
        """
        a branch of a select must be float32, got int64: 1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.select(True, 0.0, 1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_operands_differ() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Binary("+", zero, ir.const(1), "float32"))),
        """
        operands of `+` are float32 and int64: 0.0 + 1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = 0.0 + 1
            ^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_operator_on_the_wrong_dtype() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Binary("<<", zero, zero, "float32"))),
        """
        `<<` takes integers, got float32: 0.0 << 0.0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = 0.0 << 0.0
            ^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_result_of_the_wrong_dtype() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Binary("<", zero, zero, "float32"))),
        """
        the result of `0.0 < 0.0` is bool, not float32

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = 0.0 < 0.0
            ^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_integer_division_with_slash() -> None:
    refuses(
        program(
            ir.Store(B, (ir.const(0),), ir.Cast(ir.Binary("/", ir.const(1), ir.const(2), "int64"), "float32"))
        ),
        """
        the result of `1 / 2` is float64, not int64

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.cast(1 / 2, "float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_unknown_operator() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Binary("+", zero, ir.Unary("!", zero, "float32"), "float32"))),
        """
        unknown operator '!': !0.0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = 0.0 + !0.0
            ^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_unknown_function() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Call("gamma", (zero,), "float32"))),
        """
        no function gamma of 1 argument(s): T.gamma(0.0)

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.gamma(0.0)
            ^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_function_of_integers() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Cast(ir.Call("exp", (ir.const(1),), "int64"), "float32"))),
        """
        exp takes a float, got int64: T.exp(1)

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.cast(T.exp(1), "float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_arguments_differ() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Call("pow", (zero, ir.const(1.0, "float64")), "float32"))),
        """
        arguments and result of pow do not have one dtype: T.pow(0.0, T.float64(1.0))

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.pow(0.0, T.float64(1.0))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_constant_out_of_range() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Cast(ir.Const(300, "int8"), "float32"))),
        """
        300 is not a constant of dtype int8

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.cast(T.int8(300), "float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_cast_to_an_unknown_dtype() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), ir.Cast(ir.const(1), "float33"))),
        """
        cast to unknown dtype 'float33': T.cast(1, "float33")

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = T.cast(1, "float33")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_not_an_expression() -> None:
    refuses(
        program(ir.Store(B, (ir.const(0),), 1.0)),  # pyright: ignore[reportArgumentType]
        """
        a float is not an expression

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = <float>
            ^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_not_a_statement() -> None:
    refuses(
        program(zero),  # pyright: ignore[reportArgumentType]
        """
        a Const is not a statement

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            <Const>
            ^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_index_not_integer() -> None:
    refuses(
        program(ir.Store(B, (zero,), zero)),
        """
        index of B must be an integer, got float32: 0.0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0.0] = 0.0
            ^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_extent_not_integer() -> None:
    refuses(
        program(loop(extent=ir.const(1.5))),
        """
        the extent of a loop must be an integer, got float32: 1.5

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(1.5):
            ^^^^^^^^^^^^^^^^^^^^  here
                pass
            B[7] = 0.0
        """,
    )


def test_binding_not_integer() -> None:
    refuses(
        program(loop(block(bindings=(zero,)))),
        """
        a binding must be an integer, got float32: 0.0

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, 0.0)
                    ^^^^^^^^^^^^^^^^^^^^^  here
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_negative_extent() -> None:
    refuses(
        program(loop(extent=ir.const(-1))),
        """
        the extent of a loop is negative: -1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(-1):
            ^^^^^^^^^^^^^^^^^^^  here
                pass
            B[7] = 0.0
        """,
    )


def test_negative_iterator_extent() -> None:
    refuses(
        program(loop(block(iters=(ir.Iter(v, ir.const(-1)),)))),
        """
        the extent of an iterator is negative: -1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(-1, i)
                    ^^^^^^^^^^^^^^^^^^^^  here
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_negative_region_size() -> None:
    refuses(
        program(loop(block(reads=(A.region((v, -1)),)))),
        """
        the size of a region is negative: -1

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  here
                    v = T.spatial(8, i)
                    T.reads(A[v : T.size(-1)])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_undeclared_write() -> None:
    refuses(
        program(loop(block(writes=()))),
        """
        block b writes B[v] and does not declare it

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes()
                    B[v] = A[v]
                    ^^^^^^^^^^^  writes B
            B[7] = 0.0

        help: add the region to T.writes, or leave T.writes out to have it inferred
        """,
    )


def test_undeclared_read() -> None:
    refuses(
        program(loop(block(reads=()))),
        """
        block b reads A[v] and does not declare it

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads()
                    T.writes(B[v])
                    B[v] = A[v]
                    ^^^^^^^^^^^  reads A
            B[7] = 0.0

        help: add the region to T.reads, or leave T.reads out to have it inferred
        """,
    )


def test_write_outside_the_signature() -> None:
    refuses(
        program(loop(block(writes=(B.region((v + 1, 2)),)))),
        """
        block b writes B[v] outside the region it declares

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v + 1 : T.size(2)])
                    B[v] = A[v]
                    ^^^^^^^^^^^  writes B
            B[7] = 0.0

        help: widen the region in T.writes, or leave T.writes out to have it inferred
        """,
    )


def test_read_outside_the_signature() -> None:
    refuses(
        program(loop(block(reads=(A.region((0, 4)),)))),
        """
        block b reads A[v] outside the region it declares

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads(A[0 : T.size(4)])
                    T.writes(B[v])
                    B[v] = A[v]
                    ^^^^^^^^^^^  reads A
            B[7] = 0.0

        help: widen the region in T.reads, or leave T.reads out to have it inferred
        """,
    )


def test_nested_block_outside_the_signature() -> None:
    refuses(
        program(
            loop(
                block(
                    ir.Block(
                        "inner",
                        (ir.Iter(w, ir.const(1)),),
                        (ir.const(0),),
                        (),
                        (B.region(w),),
                        (ir.Store(B, (w,), zero),),
                    )
                )
            )
        ),
        """
        block b writes B[w] outside the region it declares

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    with T.block("inner"):
                        w = T.spatial(1, 0)
                        T.reads()
                        T.writes(B[w])
                        B[w] = 0.0
                        ^^^^^^^^^^  writes B
            B[7] = 0.0

        help: widen the region in T.writes, or leave T.writes out to have it inferred
        """,
    )


def test_number_of_bindings() -> None:
    refuses(
        program(loop(block(bindings=()))),
        """
        block b has 1 iterator(s) and 0 binding(s)

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  here
                    v = T.spatial(8, <unbound>)
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0
        """,
    )


def test_binding_outside_the_extent() -> None:
    refuses(
        program(loop(block(iters=(ir.Iter(v, ir.const(4)),)))),
        """
        v of block b is bound to i, which goes from 0 to 7, outside its extent 4

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.spatial(4, i)
                    ^^^^^^^^^^^^^^^^^^^  here
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0

        help: make the loops fit, or exclude the rest with T.where
        """,
    )


def test_init_without_reduction() -> None:
    refuses(
        program(loop(block(init=(ir.Store(B, (v,), zero),)))),
        """
        block b has an init and no reduce iterator

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  here
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    with T.init():
                        B[v] = 0.0
                    B[v] = A[v]
            B[7] = 0.0

        help: store before the block
        """,
    )


def test_unknown_loop_kind() -> None:
    refuses(
        program(loop(kind="magic")),
        """
        unknown loop kind 'magic'

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in T.magic(8):
            ^^^^^^^^^^^^^^^^^^^^  here
                pass
            B[7] = 0.0

        help: one of serial, parallel, vectorized, unrolled, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, vthread.x, vthread.y, vthread.z
        """,
    )


def test_unknown_iterator_kind() -> None:
    refuses(
        program(loop(block(iters=(ir.Iter(v, ir.const(8), "magic"),)))),
        """
        unknown iterator kind 'magic'

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.magic(8, i)
                    ^^^^^^^^^^^^^^^^^  here
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
            B[7] = 0.0

        help: one of spatial, reduce
        """,
    )


def test_tuple_store_of_one() -> None:
    refuses(
        program(ir.TupleStore((ir.Store(B, (ir.const(0),), zero),))),
        """
        a tuple store of fewer than two stores

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            B[0] = 0.0
            ^^^^^^^^^^  here
            B[7] = 0.0

        help: use a plain Store
        """,
    )


def test_output_never_written() -> None:
    refuses(
        ir.Program("f", (A,), (B,), ()),
        """
        output B is never written

        @ms.program
        def f(
            A: T.Tensor((8,), "float32"),
            B: T.Output((8,), "float32"),
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  nothing stores to it
        ):
            pass
        """,
    )


def test_parameter_twice() -> None:
    refuses(
        ir.Program("f", (A, A), (B,), ()),
        """
        A is a parameter twice

        @ms.program
        def f(A: T.Tensor((8,), "float32"), A_1: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  the same buffer again
            pass
        """,
    )


def test_parameter_as_input_and_output() -> None:
    refuses(
        ir.Program("f", (A,), (A,), ()),
        """
        A is a parameter twice

        @ms.program
        def f(A: T.Tensor((8,), "float32"), A_1: T.Output((8,), "float32")):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  the same buffer again
            pass
        """,
    )


def test_parameter_with_data() -> None:
    refuses(
        ir.Program("f", (W,), (B,), ()),
        """
        parameter W has data

        @ms.program
        def f(
            W: T.Tensor((2,), "float32"),
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  holds values
            B: T.Output((8,), "float32"),
        ):
            pass

        help: put tables in allocs
        """,
    )


def test_constant_output() -> None:
    refuses(
        ir.Program("f", (), (ir.Buffer("C", (1,), constant=True),), ()),
        """
        output C is constant

        @ms.program
        def f(
            C: T.Output((1,), "float32", constant=True),
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  only inputs can be
        ):
            pass
        """,
    )


def test_constant_alloc() -> None:
    refuses(
        program(allocs=(ir.Buffer("C", (1,), constant=True),)),
        """
        buffer C is constant but no input

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            C = T.alloc((1,), "float32", constant=True)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  only inputs can be
            B[7] = 0.0
        """,
    )


def test_table_of_another_dtype() -> None:
    refuses(
        program(allocs=(ir.Buffer("W", (1,), data=np.zeros(1)),)),
        """
        table W is float32 and its data float64

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            W = T.table([0.0], (1,), "float32")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
            B[7] = 0.0
        """,
    )


def test_annotation_not_plain() -> None:
    refuses(
        program(loop(annotations={"key": np.float32(1)})),
        """
        annotation 'key' is not plain data: float32

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in T.serial(8, annotations={"key": np.float32(1.0)}):
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
                pass
            B[7] = 0.0

        help: use strings, numbers, bools, None, and tuples, lists and dicts of them
        """,
    )


def test_block_annotation_not_plain() -> None:
    refuses(
        program(loop(block(annotations={"key": (1, np.int64(2))}))),
        """
        annotation 'key' is not plain data: tuple

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                ^^^^^^^^^^^^^^^^^^  here
                    v = T.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    T.annotate({"key": (1, np.int64(2))})
                    B[v] = A[v]
            B[7] = 0.0

        help: use strings, numbers, bools, None, and tuples, lists and dicts of them
        """,
    )


def test_annotation_of_another_type() -> None:
    refuses(
        program(loop(annotations={"unroll": "many"})),
        """
        annotation 'unroll' is an int, got str

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in T.serial(8, annotations={"unroll": "many"}):
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  here
                pass
            B[7] = 0.0

        help: other keys are free to hold what you like
        """,
    )


def test_index_out_of_bounds() -> None:
    refuses_text(
        """
        def f(A: T.Tensor((4, 8), "float32"), B: T.Output((4, 8), "float32")):
            for i, j in T.grid(4, 8):
                B[i, j] = A[i, j + 1]
        """,
        """
        A[i, j + 1] is out of bounds: index 1 goes from 1 to 8, and A has shape (4, 8)

        @ms.program
        def f(A: T.Tensor((4, 8), "float32"), B: T.Output((4, 8), "float32")):
            for i, j in T.grid(4, 8):
                B[i, j] = A[i, j + 1]
                ^^^^^^^^^^^^^^^^^^^^^  reads there

        help: make the loops fit the shape, or guard the access with `if` or T.select
        """,
    )


def test_store_out_of_bounds() -> None:
    refuses_text(
        """
        def f(B: T.Output((4,), "float32")):
            for i in range(4):
                B[i - 1] = 0
        """,
        """
        B[i - 1] is out of bounds: index 0 goes from -1 to 2, and B has shape (4,)

        @ms.program
        def f(B: T.Output((4,), "float32")):
            for i in range(4):
                B[i - 1] = 0.0
                ^^^^^^^^^^^^^^  writes there

        help: make the loops fit the shape, or guard the access with `if` or T.select
        """,
    )


def test_case_15205_sum_of_64_reads_of_3_constants() -> None:
    refuses_text(
        """
        def f(C: T.Output((1,), "float32")):
            W = T.table([1.0, 2.0, 3.0], (3,), "float32")
            for i, k in T.grid(1, 64):
                with T.block("C"):
                    vi = T.spatial(1, i)
                    vk = T.reduce(64, k)
                    with T.init():
                        C[vi] = 0
                    C[vi] += W[vk]
        """,
        """
        W[vk] is out of bounds: index 0 goes from 0 to 63, and W has shape (3,)

        @ms.program
        def f(C: T.Output((1,), "float32")):
            W = T.table([1.0, 2.0, 3.0], (3,), "float32")
            for i, k in T.grid(1, 64):
                with T.block("C"):
                    vi = T.spatial(1, i)
                    vk = T.reduce(64, k)
                    T.reads(W[vk])
                    T.writes(C[vi])
                    with T.init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + W[vk]
                    ^^^^^^^^^^^^^^^^^^^^^  reads there

        help: make the loops fit the shape, or guard the access with `if` or T.select
        """,
    )


def test_out_of_bounds_through_two_bindings() -> None:
    refuses_text(
        """
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(4):
                with T.block("outer"):
                    vi = T.spatial(4, i)
                    T.reads(A[0 : T.size(8)])
                    T.writes(B[0 : T.size(8)])
                    for j in range(3):
                        with T.block("inner"):
                            vj = T.spatial(12, vi * 3 + j)
                            T.reads(A[0 : T.size(8)])
                            T.writes(B[0 : T.size(8)])
                            B[0] = A[vj]
        """,
        """
        A[vj] is out of bounds: index 0 goes from 0 to 11, and A has shape (8,)

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in range(4):
                with T.block("outer"):
                    vi = T.spatial(4, i)
                    T.reads(A[0 : T.size(8)])
                    T.writes(B[0 : T.size(8)])
                    for j in range(3):
                        with T.block("inner"):
                            vj = T.spatial(12, vi * 3 + j)
                            T.reads(A[0 : T.size(8)])
                            T.writes(B[0 : T.size(8)])
                            B[0] = A[vj]
                            ^^^^^^^^^^^^  reads there

        help: make the loops fit the shape, or guard the access with `if` or T.select
        """,
    )


def test_init_out_of_bounds() -> None:
    refuses_text(
        """
        def f(A: T.Tensor((4, 4), "float32"), B: T.Output((4,), "float32")):
            for i, k in T.grid(4, 4):
                with T.block("sum"):
                    vi = T.spatial(4, i)
                    vk = T.reduce(4, k)
                    with T.init():
                        B[vi + 1] = 0
                    B[vi] += A[vi, vk]
        """,
        """
        B[vi + 1] is out of bounds: index 0 goes from 1 to 4, and B has shape (4,)

        @ms.program
        def f(A: T.Tensor((4, 4), "float32"), B: T.Output((4,), "float32")):
            for i, k in T.grid(4, 4):
                with T.block("sum"):
                    vi = T.spatial(4, i)
                    vk = T.reduce(4, k)
                    T.reads(A[vi, vk])
                    T.writes(B[vi : T.size(2)])
                    with T.init():
                        B[vi + 1] = 0.0
                        ^^^^^^^^^^^^^^^  writes there
                    B[vi] = B[vi] + A[vi, vk]

        help: make the loops fit the shape, or guard the access with `if` or T.select
        """,
    )


def test_index_out_of_bounds_in_a_condition() -> None:
    refuses_text(
        """
        def f(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
            if A[4] < 0:
                B[0] = 0
        """,
        """
        A[4] is out of bounds: index 0 is 4, and A has shape (4,)

        @ms.program
        def f(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
            if A[4] < 0.0:
            ^^^^^^^^^^^^^^  reads there
                B[0] = 0.0

        help: make the loops fit the shape, or guard the access with `if` or T.select
        """,
    )


def test_gpu_axis_with_two_extents() -> None:
    refuses_text(
        """
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for b in T.bind(1, "blockIdx.x"):
                for i in T.bind(8, "threadIdx.x"):
                    B[i] = A[i]
                for i in T.bind(4, "threadIdx.x"):
                    B[i] = A[i]
        """,
        """
        threadIdx.x has two extents in one nest

        @ms.program
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for b in T.bind(1, "blockIdx.x"):
                for i in T.bind(8, "threadIdx.x"):
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  extent 8
                    B[i] = A[i]
                for i in T.bind(4, "threadIdx.x"):
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  extent 4
                    B[i] = A[i]

        help: give both loops the larger extent and guard the smaller with T.where
        """,
    )


def test_accepts_guarded_accesses() -> None:
    accepts(
        """
        def f(A: T.Tensor((4,), "float32"), N: T.Tensor((4,), "int64"), B: T.Output((4,), "float32")):
            for i in range(8):
                if i < 4:
                    B[i] = A[i]
                B[0] = A[i] if i < 4 else 0
                B[1] = T.cast(i < 4 and A[i] > 0, "float32")
                B[2] = T.cast(i >= 4 or A[i] > 0, "float32")
                while A[0] > 1:
                    B[3] = A[i]
                with T.block("b"):
                    vi = T.spatial(4, i)
                    T.where(i < 4)
                    B[vi] = A[vi]
            for i in range(0):
                B[i + 9] = A[i + 9]
            for i in range(N[0]):
                B[i + 9] = A[N[i]]
        """
    )


def test_accepts_accesses_beside_an_assertion() -> None:
    accepts(
        """
        def f(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
            for i in range(8):
                B[i] = A[i]
                assert i < 3
        """
    )


def test_accepts_nested_and_separate_gpu_axes() -> None:
    accepts(
        """
        def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
            for i in T.bind(8, "threadIdx.x"):
                for j in T.bind(4, "threadIdx.x"):
                    B[i] = A[j]
            for i in T.bind(4, "threadIdx.x"):
                B[i] = A[i]
        """
    )


def test_accepts_reading_what_a_block_writes() -> None:
    accepts(
        """
        def f(A: T.Tensor((4,), "float32"), B: T.Output((), "float32")):
            for k in range(4):
                with T.block("sum"):
                    vk = T.reduce(4, k)
                    T.reads(A[vk])
                    T.writes(B[()])
                    with T.init():
                        B[()] = 0
                    B[()] = B[()] + A[vk]
        """
    )


def test_accepts_an_iterator_extent_of_an_earlier_iterator() -> None:
    accepts(
        """
        def f(A: T.Tensor((4, 4), "float32"), B: T.Output((4,), "float32")):
            for i in range(4):
                for k in range(i + 1):
                    with T.block("sum"):
                        vi = T.spatial(4, i)
                        vk = T.reduce(vi + 1, k)
                        with T.init():
                            B[vi] = 0
                        B[vi] += A[vi, vk]
        """
    )


def test_accepts_an_empty_output_that_nothing_writes() -> None:
    accepts(
        """
        def f(B: T.Output((4, 0), "float32")):
            pass
        """
    )


def test_errors_keep_their_data() -> None:
    p = program(loop(ir.Store(B, (j,), zero)))
    with pytest.raises(VerifyError) as caught:
        verify(p)
    error = caught.value
    assert error.message == "variable j is used and never declared"
    assert error.program is p
    assert list(error.marks.values()) == ["uses j"]
    assert error.help == ""


def test_internal_errors_ask_for_a_report() -> None:
    assert str(InternalError("no such node")) == (
        "no such node\n\nthis is a bug in metaschedule, not in your program; please report it with "
        "the traceback, the printed program, the printed trace if there is one, and the versions of "
        "metaschedule, Python and NumPy"
    )
