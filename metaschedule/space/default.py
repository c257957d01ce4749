"""The default space of a target."""

from __future__ import annotations

from ..target import Target, resolve
from ..validation import check_arguments
from .auto_bind import AutoBind
from .compute_location import RandomComputeLocation
from .cross_thread import CrossThreadReduction
from .gpu_tiling import GpuTiling
from .inline import AutoInline, InlineConstants
from .loop_kinds import ParallelVectorizeUnroll, RewriteLoopKinds
from .multi_level_tiling import MultiLevelTiling
from .postprocess import Buildable, BuildableOnGpu, RewriteReductionBlock
from .register_tiling import RegisterTiling
from .rfactor import AddRFactor
from .row_fusion import FuseRows
from .rules import ApplyCustomRule
from .space import Space
from .transforms import UnrollTransforms
from .use_instruction import UseInstruction
from .winograd import Winograd
from .with_intrinsic import RewriteTensorize
from .zeros import SkipZeros


@check_arguments
def default(target: Target | str = "native") -> Space:
    """The modules for a CPU, or for a GPU.

    >>> default("x86-64-v3,cores=2").name, default("cuda:sm_86").name
    ('cpu', 'gpu')
    """
    machine = resolve(target)
    if machine.gpu is not None:
        modules = [
            ApplyCustomRule(),
            InlineConstants(),
            AutoInline(),
            Winograd(),
            UnrollTransforms(),
            CrossThreadReduction(),
            GpuTiling(),
            RandomComputeLocation(),
            AutoBind(),
        ]
        return Space(modules=modules, checks=[BuildableOnGpu()], target=machine, name="gpu")
    return Space(
        modules=[
            ApplyCustomRule(),
            InlineConstants(),
            AutoInline(),
            Winograd(),
            UnrollTransforms(),
            SkipZeros(),
            FuseRows(),
            AddRFactor(),
            UseInstruction(),
            RegisterTiling(),
            MultiLevelTiling("SSRSRS", max_innermost_factor=64, write="may", write_levels=(1, 2)),
            RandomComputeLocation(),
            ParallelVectorizeUnroll(),
        ],
        postprocessors=[RewriteLoopKinds(), RewriteReductionBlock(), RewriteTensorize()],
        checks=[Buildable()],
        target=machine,
        name="cpu",
    )
