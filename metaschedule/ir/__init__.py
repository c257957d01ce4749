"""Tensor programs: expressions, buffers, loops, blocks; printing, structural equality and hash."""

from .buffer import Buffer, Region, check_indices, check_shape, load
from .depth import MOST_DEPTH, find_too_deep
from .dtypes import (
    DTYPES,
    FLOATS,
    INDEX,
    INTEGERS,
    check_dtype,
    highest,
    integer_limits,
    is_float,
    is_integer,
    lowest,
    numpy_dtype,
)
from .expr import (
    FUNCTIONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Operand,
    Select,
    Unary,
    Var,
    all_of,
    as_expr,
    as_int,
    binary,
    call,
    cast,
    const,
    is_zero,
    maximum,
    minimum,
    select,
    typed_binary,
    unary,
)
from .instruction import INSTRUCTIONS, HardwareInstruction, Register, find_instruction, instruct
from .layout import (
    Layout,
    addresses,
    aligned_strides,
    dense_strides,
    may_overlap,
    normal_strides,
    reach,
    strided_array,
)
from .printer import Line, identifier, program_lines, underline
from .program import Program
from .reduction import reduction_term
from .stmt import (
    GPU_AXES,
    ITER_KINDS,
    LOOP_KINDS,
    Annotations,
    Assert,
    Block,
    Body,
    For,
    If,
    Iter,
    Stmt,
    Store,
    TupleStore,
    While,
)
from .structural import expr_key, same_expr, same_exprs, structural_equal, structural_hash
from .visit import (
    Rewriter,
    StmtRewriter,
    Substitute,
    blocks,
    bodies,
    buffers_read,
    buffers_written,
    expressions,
    free_vars,
    has_load,
    height,
    loads,
    map_operands,
    operands,
    own_expressions,
    replace_fields,
    subexpressions,
    substitute,
    walk,
)
