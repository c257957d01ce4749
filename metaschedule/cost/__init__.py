"""Features of a program; analytical and learned cost models."""

from .analytical import Analytical
