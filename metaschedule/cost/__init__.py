"""Features of a program; analytical and learned cost models."""

from .analytical import Analytical
from .features import features
from .learned import Learned, rank_correlation
from .model import CostModel, Random
