"""verify(): the conjunction over schedules, with a ticket protocol in its right and its broken forms."""

import numpy as np
import pytest

from gfx950 import CodeObject, compile_hip
from gfx950.emulator import CONJUNCTION, Buffer, Schedule, estimate, launch, verify

# Split sum with a last-arriver combine: every workgroup publishes a partial sum; the one that draws the last ticket adds
# them up and puts the counter back to zero. WAIT: stores are complete before the ticket is drawn.
# AFTER: the store comes after the ticket, last thing that most workgroups do.
TICKET = """
#ifdef WAIT
#define PUBLISHED asm volatile("s_waitcnt vmcnt(0)" ::: "memory")
#else
#define PUBLISHED
#endif
#ifdef AFTER
#define AFTER_TICKET(store) asm volatile("" ::: "memory"); store
#define BEFORE_TICKET(store)
#else
#define AFTER_TICKET(store)
#define BEFORE_TICKET(store) store
#endif
extern "C" __global__ void ticket_sum(const int* x, int* partial, int* counter, int* out) {
  __shared__ int last;
  int split = blockIdx.x, splits = gridDim.x;
  int sum = x[split * 64 + threadIdx.x];
  for (int step = 32; step; step /= 2) sum += __builtin_amdgcn_ds_bpermute((threadIdx.x ^ step) * 4, sum);
  if (threadIdx.x == 0) {
    BEFORE_TICKET(__builtin_nontemporal_store(sum, partial + split));
    PUBLISHED;
    last = __hip_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == splits - 1;
    AFTER_TICKET(__builtin_nontemporal_store(sum, partial + split));
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    int total = 0;
    for (int k = 0; k < splits; k++) total += __builtin_nontemporal_load(partial + k);
    *out = total;
    *counter = 0;
  }
}
"""


@pytest.fixture(
    scope="module", params=[("right", "WAIT"), ("broken", "HURRY"), ("broken", "AFTER")], ids=lambda param: param[1]
)
def protocol(request, toolchain) -> tuple[str, CodeObject]:
    kind, define = request.param
    return kind, compile_hip(TICKET, defines={define: None})


def test_a_ticket_protocol_that_publishes_too_early_is_caught(protocol):
    kind, code = protocol
    x = np.random.default_rng(5).integers(-1000, 1000, 16 * 64, np.int32)
    args = [Buffer(x, "x", writable=False), np.zeros(16, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]

    def check(run):
        _, _, counter, out = run.args
        return None if out[0] == x.sum() and counter[0] == 0 else f"sum {out[0]}, counter {counter[0]}"

    verdict = verify(code, "ticket_sum", grid=16, block=64, args=args, check=check, workgroups_in_flight=16)
    assert verdict.ok == (kind == "right"), str(verdict)
    assert len(verdict.runs) == 10
    if kind == "broken":
        assert any("sum" in failure for failure in verdict.failures)
        assert "WRONG" in str(verdict)


def test_buffers_are_copied_and_findings_listed_once(toolchain):
    code = compile_hip('extern "C" __global__ void k(int* out) {\n out[threadIdx.x] = 3; out[99] = 4; }')
    out = np.zeros(64, np.int32)
    verdict = verify(code, "k", grid=1, block=64, args=[out])
    assert not out.any()
    assert [finding.kind for finding in verdict.findings].count("out-of-bounds") == 1
    assert not verdict.ok


SPIN = """
extern "C" __global__ void chain(int* flags, int* out) {
  int me = blockIdx.x;
  if (threadIdx.x == 0) {
    while (me && !__hip_atomic_load(flags + me - 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) __builtin_amdgcn_s_sleep(1);
    out[me] = me ? out[me - 1] + 1 : 1;
    __hip_atomic_store(flags + me, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  }
}
"""


@pytest.mark.parametrize("schedule", CONJUNCTION, ids=lambda schedule: schedule.name)
def test_workgroups_that_wait_for_each_other_make_progress_under_every_schedule(toolchain, schedule):
    out = np.zeros(8, np.int32)
    launch(compile_hip(SPIN), "chain", grid=8, block=64, args=[np.zeros(8, np.int32), out], schedule=schedule)
    assert out.tolist() == list(range(1, 9))


def test_schedules_give_the_same_result_twice(toolchain):
    code = compile_hip(TICKET)
    traces = []
    for _ in range(2):
        x, partial, counter, out = np.ones(1024, np.int32), np.zeros(16, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
        run = launch(code, "ticket_sum", grid=16, block=64, args=[x, partial, counter, out], schedule=Schedule.random(seed=3))
        traces.append((out[0], run.executed))
    assert traces[0] == traces[1]


def test_lds_fills_reach_what_was_never_written(toolchain):
    source = 'extern "C" __global__ void k(int* out) {\n __shared__ volatile int t[64]; out[threadIdx.x] = t[threadIdx.x]; }'
    code = compile_hip(source)
    values = {}
    for fill in ("nan", "zero"):
        out = np.zeros(64, np.int32)
        run = launch(code, "k", grid=1, block=64, args=[out], lds_fill=fill, strict=False)
        assert [finding.kind for finding in run.findings] == ["poison-store"]
        values[fill] = set(out.tolist())
    assert values == {"nan": {-1}, "zero": {0}}


def test_the_estimate_is_the_slowest_resource(toolchain):
    body = "{\n int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i]; }"
    code = compile_hip('extern "C" __global__ void copy(const float4* x, float4* y) ' + body)
    x, y = np.zeros(64 * 1024, np.float32), np.zeros(64 * 1024, np.float32)
    result = estimate(launch(code, "copy", grid=64, block=256, args=[x, y]).counters)
    assert result.bandwidth_ns == pytest.approx((2 * x.nbytes + 64) / 8000, rel=0.01)
    assert result.lower_bound_ns == max(result.by_resource.values())
    assert "estimate, not a measurement" in str(result)
