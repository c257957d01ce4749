from .space import Space
from .register_tiling import RegisterTiling
