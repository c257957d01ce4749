"""Candidates built, verified and timed in processes of their own, which they may end."""

from .measurer import Measurer
from .outcome import KINDS, Limits, MeasureError, Outcome

__all__ = ["KINDS", "Limits", "MeasureError", "Measurer", "Outcome"]
