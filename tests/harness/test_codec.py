"""Nested values survive the codec exactly, and a lying tree is an error, never a read beyond a buffer."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from harness.codec import DTYPES, decode, encode, plain_bytes, snapshot
from harness.errors import CodecError

WHOLE_BYTE_DTYPES = [dtype for name, dtype in DTYPES.items() if "float8" in name or "float4" in name or name in (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64",
)]  # fmt: skip


@st.composite
def tensors(draw) -> torch.Tensor:
    """Tensors of any dtype, layout and content: 0-dim, empty, permuted, expanded, offset."""
    dtype = draw(st.sampled_from(WHOLE_BYTE_DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = math.prod(shape) + draw(st.integers(0, 3))
    content = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype is torch.bool:
        content = bytes(byte & 1 for byte in content)  # a bool has no other bytes, and copying one normalises it
    storage = torch.frombuffer(bytearray(content), dtype=torch.uint8).untyped_storage() if content else torch.UntypedStorage(0)
    offset = count - math.prod(shape)
    stride = torch.empty(shape).stride()
    tensor = torch.empty(0, dtype=dtype).set_(storage, offset if content else 0, shape, stride)
    return tensor.permute(draw(st.permutations(range(len(shape)))))


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(WHOLE_BYTE_DTYPES)
)
values = st.recursive(
    tensors() | scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of the elements, whatever the dtype."""
    copy = tensor.contiguous()
    start = copy.storage_offset() * copy.itemsize
    flat = torch.empty(0, dtype=torch.uint8).set_(copy.untyped_storage(), start, (copy.nbytes,), (1,))
    return flat.numpy().tobytes()


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()) and raw(a) == raw(b)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


@settings(deadline=None)
@given(values)
def test_round_trip(value):
    encoded = encode(value)
    assert same(value, decode(encoded.tree, encoded.storages))


@settings(deadline=None)
@given(values)
def test_snapshot_keeps_values_and_drops_the_rest(value):
    encoded = encode(snapshot(value))
    nbytes = sum(storage.nbytes() for storage in encoded.storages)
    assert nbytes <= sum(tensor.nbytes for tensor in leaves(value))
    assert [raw(tensor) for tensor in leaves(snapshot(value))] == [raw(tensor) for tensor in leaves(value)]


@pytest.mark.parametrize("name", ["detach", "clone", "contiguous", "resolve_conj", "untyped_storage"])
def test_methods_of_an_instance_are_not_called(name):
    tensor = torch.ones(3)
    setattr(tensor, name, lambda *args, **kwargs: torch.zeros(3))
    encoded = encode(snapshot(tensor))
    assert torch.equal(decode(encoded.tree, encoded.storages), torch.ones(3))


def test_a_value_that_contains_itself_is_refused_after_a_snapshot():
    endless: list = [torch.ones(1)]
    endless.append(endless)
    with pytest.raises(CodecError, match="contains itself"):
        encode(snapshot(endless))


def test_a_snapshot_never_shares_memory():
    tensor = torch.ones(3)
    kept = snapshot([tensor, (tensor, {"a": tensor})])
    tensor.zero_()
    assert all(torch.equal(leaf, torch.ones(3)) for leaf in leaves(kept))


def leaves(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for item in items for tensor in leaves(item)]


def test_views_stay_views_of_one_storage():
    base = torch.arange(12.0)
    encoded = encode({"base": base, "half": base[6:], "grid": base.view(3, 4).t()})
    assert len(encoded.storages) == 1
    back = decode(encoded.tree, encoded.storages)
    back["base"][7] = -1.0
    assert back["half"][1] == -1.0


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, b"bytes", object(), torch.empty(2, device="meta"), torch.eye(2).to_sparse(), torch.tensor([1j]).conj(),
        torch.ones(1).as_subclass(type("Lazy", (torch.Tensor,), {})),
    ],
)  # fmt: skip
def test_what_cannot_travel_is_named_with_its_path(value):
    with pytest.raises(CodecError, match=r"\[1\]\['x'\] is "):
        encode((0, {"x": value}))


def test_a_value_that_contains_itself():
    value: list = []
    value.append(value)
    with pytest.raises(CodecError, match="contains itself"):
        encode(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
tensor_nodes = st.fixed_dictionaries(
    {
        "storage": st.integers(-1, 3), "dtype": st.sampled_from(["float32", "int8", "nope"]), "offset": st.integers(-1, 40),
        "shape": st.lists(st.integers(-1, 1 << 62), max_size=3), "stride": st.lists(st.integers(-1, 1 << 62), max_size=3),
    }
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(
    json_values | st.tuples(st.just("tensor"), tensor_nodes).map(list) | st.tuples(st.text(max_size=6), json_values).map(list)
)
def test_a_forged_tree_is_refused_or_stays_inside_its_storage(tree):
    storage = torch.UntypedStorage(32)
    try:
        value = decode(tree, [storage])
    except CodecError:
        return
    for tensor in leaves(value):
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = tensor.storage_offset() + sum((size - 1) * step for size, step in steps)
        assert 0 in tensor.shape or (last + 1) * tensor.itemsize <= storage.nbytes()
        assert storage.nbytes() == 32


@pytest.mark.parametrize("name", ["detach", "resolve_conj", "resolve_neg", "clone"])
def test_a_snapshot_is_made_without_what_a_submission_put_in_place(monkeypatch, name):
    def forged(self, *args, **kwargs):
        raise AssertionError("a patched method was called")

    value = torch.ones(3)
    monkeypatch.setattr(torch.Tensor, name, forged)
    copy = snapshot(value)
    monkeypatch.undo()
    assert torch.equal(copy, value)


def test_nothing_of_a_submission_is_asked_what_a_tensor_is(monkeypatch):
    """It could compute whenever that is asked: before the copy that counts, and before the one that it is compared with."""

    def asked(self):
        raise AssertionError("a patched property was asked")

    value = torch.ones(3)
    monkeypatch.setattr(torch.Tensor, "layout", property(asked))
    copy, sizes = snapshot(value), plain_bytes(value)
    monkeypatch.undo()
    assert torch.equal(copy, value)
    assert sizes == [12]


@pytest.mark.parametrize("base", [torch.Tensor, list, tuple, int, str], ids=lambda base: base.__name__)
def test_a_type_that_says_it_equals_a_plain_one_is_none(base):
    """It could compute in its iterator or its storage's accessor, after the clock has stopped."""

    def equal(cls, other):
        raise AssertionError("the type was asked")

    kind = type(type(base))("Meta", (type(base),), {"__eq__": equal, "__hash__": lambda cls: 0})
    spoof = kind("Spoof", (base,), {"__iter__": equal})
    value = torch.ones(3).as_subclass(spoof) if base is torch.Tensor else spoof()
    assert snapshot(value) is value
    assert plain_bytes(value) == []
    with pytest.raises(CodecError, match=r"is of type .*Spoof"):
        encode([value])


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", WHOLE_BYTE_DTYPES, ids=str)
def test_a_submission_may_ask_for_deterministic_algorithms(deterministic, dtype):
    """Then torch fills what it allocates, and cannot fill every dtype."""
    storage = torch.UntypedStorage(16)
    tree = ["tensor", {"storage": 0, "dtype": str(dtype).removeprefix("torch."), "shape": [1], "stride": [1], "offset": 0}]
    assert decode(tree, [storage]).dtype is dtype


def test_no_mode_that_was_left_active_hears_of_a_copy():
    """Else a submission would compute while its output is copied, behind the clock's end."""
    heard = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            heard.append(function)
            return function(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            heard.append(function)
            return function(*args, **(kwargs or {}))

    value = [torch.ones(3), {"a": torch.ones(2, 2).t()}]
    with Functions(), Dispatched():
        torch.ones(1)
        assert heard  # they are active
        heard.clear()
        copy = snapshot(value)
        assert not heard
    assert torch.equal(copy[0], value[0])
    assert torch.equal(copy[1]["a"], value[1]["a"])
