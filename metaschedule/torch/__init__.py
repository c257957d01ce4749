"""Models of PyTorch on our kernels: a `torch.compile` backend that tunes.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
>>> compiled = torch.compile(model, backend="metaschedule")
>>> with torch.no_grad():
...     compiled(torch.ones(2, 8)).shape
torch.Size([2, 4])
"""

from . import lowerings
from .artefact import Artefact, compile, load
from .backend import backend, refresh, register
from .explain import explain, tune
from .fallback import NotCaptured
from .optimize import Optimized, optimize
from .packed import unpack
from .profile import profile

register()
