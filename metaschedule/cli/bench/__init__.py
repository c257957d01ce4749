"""`metaschedule bench`: this package beside others, and its parts beside each other."""

from __future__ import annotations

import typer

from .instructions import instructions
from .models import models
from .operators import operators
from .spaces import spaces

commands = typer.Typer(no_args_is_help=True, help="Measure this package beside others, and its parts.")
for command in (operators, models, spaces, instructions):
    commands.command()(command)
