"""TVM's MetaSchedule, in a process and a virtual environment of its own."""

from .contestant import TVM

__all__ = ["TVM"]
