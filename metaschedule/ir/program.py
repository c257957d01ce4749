"""A program: parameters, intermediate buffers, statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..markup import html
from .buffer import Buffer
from .stmt import NO_ANNOTATIONS, Annotations, Body


@dataclass(eq=False, slots=True, repr=False)
class Program:
    """One kernel. `inputs` and `outputs` are its parameters in call order; `allocs` are buffers that
    live for one call (intermediate results, and embedded tables, which have `data`)."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Body
    allocs: tuple[Buffer, ...] = ()
    annotations: Annotations = field(default_factory=lambda: NO_ANNOTATIONS)

    @property
    def params(self) -> tuple[Buffer, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    def __str__(self) -> str:
        from .printer import print_program

        return print_program(self)

    def __repr__(self) -> str:
        def spec(buffers: tuple[Buffer, ...]) -> str:
            return ", ".join(f"{b.name}: {b.dtype}{list(b.shape)}" for b in buffers)

        return f"<Program {self.name}({spec(self.inputs)}) -> {spec(self.outputs)}>"

    def _repr_html_(self) -> str:
        """The script, coloured, for notebooks."""
        return html.view(html.script(str(self)))
