"""The lowerings, by family; importing this package registers them all."""

from . import elementwise, matmul, views
