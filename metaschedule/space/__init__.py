"""Search spaces: modules, post-processors, default spaces per target, statistics."""

from .compute_location import RandomComputeLocation
from .default import default
from .inline import AutoInline, InlineConstants
from .loop_kinds import ParallelVectorizeUnroll, RewriteLoopKinds
from .multi_level_tiling import MultiLevelTiling
from .postprocess import Buildable, RewriteReductionBlock
from .presets import preset, union
from .register_tiling import RegisterTiling
from .rfactor import AddRFactor
from .row_fusion import FuseRows
from .rules import ApplyCustomRule, For
from .space import Space, as_space
from .use_instruction import UseInstruction
from .with_intrinsic import MultiLevelTilingWithIntrinsic, RewriteTensorize
from .zeros import SkipZeros
