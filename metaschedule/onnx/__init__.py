"""Models in ONNX on our kernels, through the graph and passes of `metaschedule.torch`.

>>> import numpy as np, onnx.parser
>>> import metaschedule as ms
>>> model = onnx.parser.parse_model('''
...     <ir_version: 8, opset_import: ["": 18]>
...     agraph (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }''')
>>> ms.onnx.compile(model)(np.float32([[-1, 2, -3], [4, -5, 6]]))
array([[0., 2., 0.],
       [4., 0., 6.]], dtype=float32)
"""

from . import operators
from .compile import CompiledModel, compile
from .errors import InvalidModel, OnnxError, Unsupported, UnsupportedOperator
from .model import Model, load
from .tuning import tune
