"""Inputs, oracle and verdicts: the oracle against plain loops, the judge against kernels that are wrong in one way each."""

import pytest
import torch
from nvfp4_cases import HEADS, PAGES, PROBLEM, REFERENCE, heads_spec, make_input

from popcorn.cases import parse_cases
from popcorn.taskfile import load_task_file

TASK = load_task_file(PROBLEM / "task.yml")
SMOKE = parse_cases((PROBLEM / "cases" / "smoke.txt").read_text(), "smoke.txt")


def naive(data, **faults):
    """The problem's definition in loops, key by key, fp64; `faults` make it wrong in one way."""
    q, cache, topk, block_table, seq_lens, k_scale, v_scale, config = data
    order = faults.get("order", config["v_scales"])
    heads = PAGES.read_pages(cache, order)
    out = torch.zeros(q.shape, dtype=torch.float64)
    q_len, group = config["q_len"], config["group_size"]
    for row in range(len(seq_lens) * q_len):
        pos = int(seq_lens[row // q_len]) - q_len + row % q_len + faults.get("shift", 0)
        for kv_head in range(config["num_kv_heads"]):
            slots = topk[kv_head, row].tolist()
            slots = list(dict.fromkeys(slots)) if faults.get("once") else slots
            keys, values = [], []
            for block in slots:
                if not 0 <= block <= pos // 128:
                    continue
                page = int(block_table[row // q_len, block])
                count = min(128, pos - block * 128 + 1)
                read = [part[page, kv_head, :count] for part in heads]
                if faults.get("nibbles"):
                    read[2] = read[2] >> 4 | read[2] << 4
                keys.append(PAGES.decode(read[0], read[1], k_scale.double()))
                values.append(PAGES.decode(read[2], read[3], v_scale.double()))
            if keys:
                mine = q[row, kv_head * group : (kv_head + 1) * group].double()
                p = torch.softmax(mine @ torch.cat(keys).T * config["sm_scale"], dim=-1)
                out[row, kv_head * group : (kv_head + 1) * group] = p @ torch.cat(values)
    return out


@pytest.mark.parametrize("slots", REFERENCE.SLOTS)
@pytest.mark.parametrize("heads", HEADS)
def test_the_oracle_is_the_definition(heads, slots):
    data = make_input(**heads_spec(*heads), kvmin=0, slots=slots, batchsize=3, padrows=2)
    torch.testing.assert_close(REFERENCE.oracle(data), naive(data), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dist", REFERENCE.DISTRIBUTIONS)
def test_the_oracle_is_the_definition_for_every_distribution(dist):
    data = make_input(dist=dist, vscales="linear" if dist == "bytes" else "swizzled")
    torch.testing.assert_close(REFERENCE.oracle(data), naive(data), rtol=1e-12, atol=1e-13)


def test_rounding_the_oracle_passes_both_verdicts():
    data = make_input(kvmin=0, slots="messy", batchsize=8, padrows=3)
    verdicts = REFERENCE.judge(data, REFERENCE.ref_kernel(data))
    assert verdicts["official"]["ok"]
    assert verdicts["strict"]["ok"]
    assert verdicts["strict"]["rel_l2_worst"] < 2**-8


FAULTS = {
    "V scales read in token order": {"order": "linear"},
    "nibbles of V swapped": {"nibbles": True},
    "a key too few": {"shift": -1},
    "duplicates counted once": {"once": True},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_fails_the_strict_verdict(fault):
    data = make_input(batchsize=4, kvmin=500, kvseqlen=600, slots="messy", topk=12)
    verdict = REFERENCE.judge(data, naive(data, **FAULTS[fault]).bfloat16())["strict"]
    assert not verdict["ok"]
    assert "limit" in verdict["message"]
    assert verdict["first_offending"]


def test_a_single_wrong_element_fails_the_strict_verdict():
    data = make_input()
    output = REFERENCE.ref_kernel(data)
    output[1, 3, 77] *= 1.5
    verdict = REFERENCE.judge(data, output)["strict"]
    assert (verdict["ok"], verdict["first_offending"]) == (False, [1, 3])


def test_rows_that_see_nothing_have_to_be_exactly_zero():
    data = make_input(kvmin=0, kvseqlen=3, qseqlen=3, batchsize=6, padrows=2)
    expected = REFERENCE.oracle(data)
    blind = (expected == 0).all(-1).all(-1)
    assert 2 < int(blind.sum()) < len(blind)
    for value in (1e-30, float("nan"), float("inf")):
        output = REFERENCE.ref_kernel(data)
        output[int(blind.nonzero()[0, 0]), 0, 5] = value
        verdicts = REFERENCE.judge(data, output)
        assert not verdicts["official"]["ok"]
        assert not verdicts["strict"]["ok"]


def test_nan_fails_both_verdicts_and_is_counted():
    data = make_input()
    output = REFERENCE.ref_kernel(data)
    output[0, 0] = float("nan")
    verdicts = REFERENCE.judge(data, output)
    assert not verdicts["official"]["ok"]
    assert verdicts["strict"]["nan_count"] == 128
    assert verdicts["strict"]["rel_l2_worst"] is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (None, "NoneType"),
        (torch.zeros(2, 16, 64, dtype=torch.bfloat16), "shape [2, 16, 64]"),
        (torch.zeros(2, 16, 128), "torch.float32"),
    ],
)
def test_what_is_no_output_is_named_in_one_line(output, words):
    data = make_input()
    verdicts = REFERENCE.judge(data, output)
    assert words in verdicts["official"]["message"]
    assert words in verdicts["strict"]["message"]
    assert not REFERENCE.check_implementation(data, output)[0]


@pytest.mark.parametrize("heads", HEADS)
def test_messy_slots_hold_everything_that_may_stand_there(heads):
    spec = heads_spec(*heads) | {"batchsize": 20, "kvseqlen": 2000, "topk": 12, "seed": 4, "slots": "messy", "kvmin": 0}
    lists = REFERENCE.make_lists(**spec)
    blocks, own = lists.topk, (lists.positions // 128)[None, :, None]
    for found in (blocks == -1, blocks < -1, blocks == own + 1, blocks > own + 999, blocks == 2**31 - 1):
        assert found.any()
    assert (~lists.valid.any(-1)).any()
    assert (lists.valid[..., 1:] & (blocks[..., 1:] == blocks[..., :1])).any(), "no duplicates"
    assert (lists.valid[..., 1:] & ~lists.valid[..., :-1]).any(), "valid slots only at the front"


def test_valid_slots_are_distinct_and_hold_the_own_block():
    lists = REFERENCE.make_lists(batchsize=9, qseqlen=2, kvseqlen=3000, topk=16, seed=4, kvmin=0)
    for slots, pos in zip(lists.topk[0].tolist(), lists.positions.tolist(), strict=True):
        listed = [block for block in slots if block >= 0]
        assert len(set(listed)) == len(listed) == min(16, pos // 128 + 1 if pos >= 0 else 0)
        assert pos < 0 or pos // 128 in listed


def test_nothing_that_a_kernel_must_not_read_is_finite():
    """Blocks that nobody lists and tokens past the end are NaN, so the oracle's own reads prove themselves."""
    data = make_input(kvseqlen=1000, kvmin=900, topk=2)
    heads = PAGES.read_pages(data[1])
    poisoned = (heads.v_scales == 0xFF).all(-1)[:, 0]
    pages = data[3][0, :8].tolist()
    listed = {block for block in data[2][0, 0].tolist() if block >= 0}
    for block, page in enumerate(pages):
        tokens = torch.arange(128) + block * 128 >= data[4][0] if block in listed else torch.ones(128, dtype=torch.bool)
        assert torch.equal(poisoned[page], tokens), block


def test_inputs_are_equal_for_equal_seeds_and_differ_otherwise():
    for one, two in zip(make_input(seed=5)[:-1], make_input(seed=5)[:-1], strict=True):
        assert torch.equal(one, two)
    assert not torch.equal(make_input(seed=5)[0], make_input(seed=6)[0])


@pytest.mark.parametrize("heads", HEADS)
def test_min_bytes_counts_what_is_visible_once(heads):
    spec = {**heads_spec(*heads), "batchsize": 4, "kvseqlen": 700, "topk": 5, "seed": 3}
    spec |= {"kvmin": 0, "slots": "messy", "padrows": 2}
    data = REFERENCE.generate_input(**spec, device="cpu")
    q_len, visible = data[7]["q_len"], {}
    rows, positions = REFERENCE.row_positions(data)
    valid, seeing = REFERENCE.valid_slots(data), 0
    for kv_head in range(heads[0]):
        for row, pos in zip(rows.tolist(), positions.tolist(), strict=True):
            seeing += bool(valid[kv_head, row].any())
            for block in data[2][kv_head, row][valid[kv_head, row]].tolist():
                key = (kv_head, row // q_len, block)
                visible[key] = max(visible.get(key, 0), min(128, pos + 1 - block * 128))
    rows_bytes = (seeing * data[7]["group_size"] + data[0].shape[0] * data[0].shape[1]) * 256
    assert REFERENCE.min_bytes(spec) == sum(visible.values()) * 144 + rows_bytes
    assert REFERENCE.min_bytes(spec, "nvfp4") == REFERENCE.min_bytes(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"topk": 0}, "topk: 0 cannot be used; it has to be an integer from 1 to 64"),
        ({"topk": 65}, "from 1 to 64"),
        ({"groupsize": 17}, "groupsize: 17"),
        ({"kvmin": 301}, "kvmin: 301"),
        ({"batchsize": True}, "batchsize: True"),
        ({"vscales": "tiled"}, "vscales: tiled is unknown; use one of swizzled, linear"),
        ({"dist": "odd"}, "dist: odd"),
        ({"slots": "odd"}, "slots: odd"),
    ],
)
def test_a_case_that_cannot_be_made_names_its_key(spec, words):
    with pytest.raises(REFERENCE.CaseSpecError, match=words):
        make_input(**spec)


def test_the_case_lists_cover_the_problem():
    specs = [case.spec for case in TASK.tests]
    heads = {(s.get("numkvheads", 1), s.get("groupsize", 16), s["qseqlen"]) for s in specs}
    assert set(HEADS) <= heads
    for key, values in {"slots": REFERENCE.SLOTS, "vscales": PAGES.V_SCALES, "dist": REFERENCE.DISTRIBUTIONS}.items():
        assert {spec.get(key, values[0]) for spec in specs} == set(values)
    every = [*specs, *(case.spec for case in TASK.benchmarks)]
    assert {min(s["topk"] for s in every), max(s["topk"] for s in every)} == {1, 64}
    assert {min(s["kvseqlen"] for s in every), max(s["kvseqlen"] for s in every)} == {1, 131072}
    assert {min(s["batchsize"] for s in every), max(s["batchsize"] for s in every)} == {1, 256}


@pytest.mark.parametrize("case", SMOKE, ids=lambda case: case.text)
def test_smoke_cases_are_small(case):
    assert REFERENCE.min_bytes(case.spec) < 2**21
