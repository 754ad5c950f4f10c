"""flash_mla_with_kvcache: dense paged and sparse FP8 MLA decode; docs/flash-mla.md."""

from kernels.flash_mla.interface import (
    FlashMLASchedMeta as FlashMLASchedMeta,
)
from kernels.flash_mla.interface import (
    flash_mla_with_kvcache as flash_mla_with_kvcache,
)
from kernels.flash_mla.interface import (
    get_mla_metadata as get_mla_metadata,
)
