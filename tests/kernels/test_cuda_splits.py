"""What the host divides for the CUDA kernels: tiles among splits, an output's units among the blocks of a cluster."""

from hypothesis import given
from hypothesis import strategies as st

from kernels.cuda_backend import CUDA_MAX_CLUSTER, CUDA_TILE, CUDA_UNITS, split_args

clusters = st.integers(1, CUDA_MAX_CLUSTER)


@given(st.integers(0, 1 << 31), clusters, st.integers(1, 64))
def test_splits_cover_the_tiles(kv_len, cluster, groups):
    args = split_args(kv_len, cluster, groups)
    splits = cluster * groups
    assert args["uniform_each"] * splits + args["uniform_more"] == -(-kv_len // CUDA_TILE)
    assert 0 <= args["uniform_more"] < splits


@given(clusters)
def test_units_have_one_owner_each(cluster):
    args = split_args(1024, cluster, 1)
    owners = [unit * args["share_inverse"] >> 16 for unit in range(CUDA_UNITS)]
    assert owners == [unit // args["share"] for unit in range(CUDA_UNITS)]
    assert max(owners) < cluster
