"""Builders and runners on the nodes of a Ray cluster. Imports Ray when it is used."""

from .workers import RayWorkers

__all__ = ["RayWorkers"]
