"""Strategies, the scheduler of several programs, `tune`."""

from .evolutionary import Evolutionary
from .exhaustive import Exhaustive
from .history import History
from .progress import Progress
from .result import Result, best_schedule
from .strategy import Replay, Strategy
from .tune import tune
