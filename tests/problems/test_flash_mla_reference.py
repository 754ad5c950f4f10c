"""Inputs, oracle and verdicts of the flash_mla problem."""

from pathlib import Path

import pytest
import torch

from harness.modules import ModuleSpace
from harness.problem import load_problem
from popcorn.cases import parse_cases

FOLDER = Path(__file__).resolve().parents[2] / "problems" / "flash_mla"
REFERENCE = ModuleSpace(FOLDER).load("reference")
CACHE = ModuleSpace(FOLDER).load("cache")
SPARSE = {"batchsize": 3, "qseqlen": 2, "kvseqlen": 60, "topk": 20, "numheads": 3, "layout": "v32", "seed": 5}
DENSE = {"batchsize": 3, "qseqlen": 3, "kvseqlen": 20, "numheads": 4, "kvheads": 2, "page": 8, "seed": 6}
DENSE |= {"causal": 1, "kvmin": 0}


def make(**spec):
    return REFERENCE.generate_input(**spec, device="cpu")


def honest(data):
    out, lse = REFERENCE.ref_kernel(data)
    return out.bfloat16(), lse.float()


def by_hand(data, sequence, token, head):
    """One output row and lse, token by token in Python numbers."""
    q, cache, options = data
    keys = []
    if options["indices"] is None:
        length = int(options["cache_seqlens"][sequence])
        end = length - q.shape[1] + 1 + token if options["causal"] else length
        table = options["block_table"][sequence].tolist()
        places = [table[p // cache.shape[1]] * cache.shape[1] + p % cache.shape[1] for p in range(max(end, 0))]
        group = head // (q.shape[2] // cache.shape[2])
        keys = [CACHE.read_rows(cache, "bf16", torch.tensor([place]))[0, group] for place in places]
    else:
        row = options["indices"][sequence, token].tolist()
        kept = row if options["topk_length"] is None else row[: int(options["topk_length"][sequence])]
        inside = [i for i in kept if 0 <= i < cache.shape[0] * cache.shape[1]]
        keys = [CACHE.read_rows(cache, "v32", torch.tensor([place]))[0, 0] for place in inside]
    scores = [float(q[sequence, token, head].double() @ key) * q.shape[3] ** -0.5 for key in keys]
    if not scores:
        return torch.zeros(512, dtype=torch.float64), float("inf")
    lse = float(torch.tensor(scores, dtype=torch.float64).logsumexp(0))
    out = sum(torch.exp(torch.tensor(s - lse, dtype=torch.float64)) * key[:512] for s, key in zip(scores, keys, strict=True))
    sink = options["attn_sink"]
    return out if sink is None else out * torch.sigmoid(lse - sink[head].double()), lse


HAND = [DENSE, SPARSE | {"invalid": "some", "lengths": 1}, SPARSE | {"sink": "normal", "invalid": "all"}]


@pytest.mark.parametrize("spec", HAND)
def test_the_oracle_agrees_with_a_sum_by_hand(spec):
    data = make(**spec)
    out, lse = REFERENCE.ref_kernel(data)
    for sequence in range(3):
        for token in range(spec["qseqlen"]):
            for head in range(spec["numheads"]):
                row, natural = by_hand(data, sequence, token, head)
                torch.testing.assert_close(out[sequence, token, head], row, rtol=1e-10, atol=1e-12)
                assert float(lse[sequence, head, token]) == pytest.approx(natural, rel=1e-10)


@pytest.mark.parametrize("spec", [DENSE, SPARSE | {"sink": "mixed", "lengths": 1, "invalid": "lead", "extratopk": 9}])
def test_an_honest_output_passes_and_one_wrong_row_does_not(spec):
    data = make(**spec)
    out, lse = honest(data)
    verdict = REFERENCE.judge(data, (out, lse))
    assert verdict["official"]["ok"], verdict
    assert verdict["strict"]["ok"], verdict
    place = REFERENCE.ref_kernel(data)[0].abs().amax(-1).flatten().argmax()  # a row that a sink has not made zero
    wrong = out.clone()
    wrong.view(-1, 512)[place] *= 1.05
    assert not REFERENCE.judge(data, (wrong, lse))["official"]["ok"]
    assert not REFERENCE.judge(data, (wrong, lse))["strict"]["ok"]
    assert "lse" in REFERENCE.check_implementation(data, (out, lse + 0.01))[1]


def test_what_is_not_the_right_kind_of_output_is_named():
    data = make(**SPARSE)
    out, lse = honest(data)
    wrong = {"return the tuple": out, "lse is": (out, lse.double()), "out is": (out.float(), lse), "is a tuple": (out,)}
    for words, output in wrong.items():
        ok, message = REFERENCE.check_implementation(data, output)
        assert not ok
        assert words in message


def test_infinities_and_nan_have_to_match():
    data = make(**SPARSE | {"invalid": "all"})
    out, lse = honest(data)
    assert lse[0].isposinf().all()
    assert "+inf" in REFERENCE.check_implementation(data, (out, lse.nan_to_num(posinf=-torch.inf)))[1]
    assert "NaN" in REFERENCE.check_implementation(data, (out.index_fill(0, torch.tensor([0]), torch.nan), lse))[1]


def test_inputs_are_reproducible_and_unused_entries_are_nan():
    first, second = make(**SPARSE), make(**SPARSE)
    assert torch.equal(first[1].view(torch.uint8), second[1].view(torch.uint8))
    assert torch.equal(first[2]["indices"], second[2]["indices"])
    used = REFERENCE.select(REFERENCE.checked_spec(SPARSE))[0].used()
    everything = torch.arange(first[1].shape[0] * first[1].shape[1])
    nan = CACHE.read_rows(first[1], "v32", everything)[:, 0].isnan().all(-1)
    assert nan.logical_not().nonzero()[:, 0].tolist() == used.tolist()


def test_min_bytes_counts_distinct_tokens_once():
    spec = SPARSE | {"kvseqlen": 20}  # both query tokens of a sequence attend to all 20
    rows = 3 * 2
    assert REFERENCE.min_bytes(spec) == 60 * 656 + rows * 20 * 4 + rows * 3 * (2 * 576 + 2 * 512 + 4)
    assert REFERENCE.min_bytes(spec, "v32") == REFERENCE.min_bytes(spec)
    with pytest.raises(REFERENCE.CaseSpecError, match="format: bf16"):
        REFERENCE.min_bytes(spec, "bf16")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layout": "fp4"}, "layout: fp4"),
        ({"topk": 0}, "layout: v32"),
        ({"kvheads": 2}, "kvheads: 2"),
        ({"sinks": "none"}, "sinks: unknown"),
        ({"batchsize": 0}, "batchsize: 0"),
        ({"kvmin": 99}, "kvmin: 99"),
    ],
)
def test_a_case_that_cannot_be_made_is_named(change, named):
    with pytest.raises(REFERENCE.CaseSpecError, match=named):
        make(**SPARSE | change)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("cases/*.txt")), ids=lambda path: path.name)
def test_every_case_file_holds_small_cases_that_can_be_made(path):
    cases = parse_cases(path.read_text(), path.name)
    assert cases
    for case in cases:
        assert REFERENCE.min_bytes(case.spec) < 2**24


def test_the_cases_of_task_yml_can_be_made():
    task = load_problem(FOLDER).task
    for case in (*task.tests, *task.benchmarks):
        REFERENCE.checked_spec(case.spec)
