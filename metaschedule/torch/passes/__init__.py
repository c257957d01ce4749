"""Rewritings of a graph that keep its meaning: see README.md."""

from ..graph import Graph
from .attention import attend_to_caches
from .batch_norm import fold_batch_norms
from .channels_last import use_channels_last
from .common import share_common
from .constants import fold_constants
from .empty import fold_empty
from .integer_products import integer_products
from .joined_products import join_products
from .narrow_weights import narrow_weights
from .sink_views import sink_views
from .slices import slice_pieces
from .views import simplify_views


def rewrite(graph: Graph) -> None:
    """All passes, in the order in which they make room for each other."""
    fold_empty(graph)
    slice_pieces(graph)
    simplify_views(graph)
    share_common(graph)
    if not graph.on_gpu:
        attend_to_caches(graph)
    fold_batch_norms(graph)
    integer_products(graph)
    simplify_views(graph)
    narrow_weights(graph, graph.narrowing)
    simplify_views(graph)
    share_common(graph)
    join_products(graph)
    use_channels_last(graph)
    simplify_views(graph)
    fold_constants(graph)
    sink_views(graph)
    simplify_views(graph)
