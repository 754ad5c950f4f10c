"""Nested values of tensors and plain scalars as (JSON tree, storages), and back.

A tree node is a list: its kind, then its content. Tensors name a storage by index, so that views of one storage stay
views of one storage. `decode` trusts nothing: a tree may come from a worker that lies.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import CodecError

MAX_DEPTH = 32
MAX_NODES = 100_000
DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype) and "q" not in name}
DTYPE_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in DTYPES.values()}
# The class's own, taken before a submission is there: what a call returned may carry others, which would compute only now.
DETACH, CLONE = torch.Tensor.detach, torch.Tensor.clone
RESOLVE_CONJ, RESOLVE_NEG = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg
TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)
NUMEL, ELEMENT_SIZE, IS_CONTIGUOUS = torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.is_contiguous
IS_CONJ, IS_NEG = torch.Tensor.is_conj, torch.Tensor.is_neg
LAYOUT = vars(torch._C.TensorBase)["layout"].__get__
STRIDED, CONTIGUOUS = torch.strided, torch.contiguous_format
NO_FUNCTION_MODES, NO_DISPATCH_MODES = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch


@dataclass
class Encoded:
    """A value without its bytes, and the storages that hold them."""

    tree: list[Any]
    storages: list[torch.UntypedStorage]


def encode(value: Any) -> Encoded:
    """The value as a JSON tree and its storages (shared, not copied).

    Raises:
        CodecError: a value that is not made of strided tensors, tuples, lists, dicts, numbers, strings, None, dtypes
            and devices, or that is nested too deeply. Subclasses of Tensor are refused: they could compute lazily.
    """
    writer = _Writer()
    return Encoded(writer.node(value, "", 0), writer.storages)


def decode(tree: Any, storages: list[torch.UntypedStorage]) -> Any:
    """The value that `tree` describes, its tensors lying in `storages`. Raises CodecError for a tree `encode` never wrote."""
    return _Reader(storages).node(tree, "", 0)


def snapshot(value: Any) -> Any:
    """A copy of the nested value: every tensor detached, contiguous and alone in new storage.

    What `encode` refuses stays as it is, such as values nested too deeply; nothing of a subclass is touched, and no mode that
    a submission has left active (torch.overrides, torch.utils._python_dispatch) hears of it.
    """
    with NO_FUNCTION_MODES(), NO_DISPATCH_MODES():
        return _copied(value, 0)


def _copied(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return value
    if _exactly(value, *TENSOR_TYPES) and LAYOUT(value) is STRIDED:
        return CLONE(RESOLVE_NEG(RESOLVE_CONJ(DETACH(value))), memory_format=CONTIGUOUS)
    if _exactly(value, tuple, list):
        return type(value)(_copied(item, depth + 1) for item in value)
    if type(value) is dict:
        return {key: _copied(item, depth + 1) for key, item in value.items()}
    return value


def _exactly(value: Any, *kinds: type) -> bool:
    """Whether a value is of one of these very types. `in` and isinstance would ask its type, which may answer as it likes."""
    kind = type(value)
    return any(kind is one for one in kinds)


def tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The plain tensors of a nested value, as deep as `encode` goes."""
    if _exactly(value, *TENSOR_TYPES):
        yield value
    elif _exactly(value, tuple, list, dict) and depth < MAX_DEPTH:
        for item in value.values() if type(value) is dict else value:
            yield from tensors(item, depth + 1)


def plain_bytes(value: Any) -> list[int] | None:
    """The sizes of a nested value's tensors, if `snapshot` copies each of them as it lies."""
    with NO_FUNCTION_MODES(), NO_DISPATCH_MODES():
        parts = list(tensors(value))
        if any(LAYOUT(part) is not STRIDED or not IS_CONTIGUOUS(part) or IS_CONJ(part) or IS_NEG(part) for part in parts):
            return None
        return [NUMEL(part) * ELEMENT_SIZE(part) for part in parts]


def storages_of(tree: Any) -> set[int]:
    """Indices of the storages that a tree written by `encode` names."""
    if isinstance(tree, list):
        return set().union(*map(storages_of, tree))
    return {tree["storage"]} if isinstance(tree, dict) else set()


def named_bytes(tree: Any, depth: int = 0) -> int:
    """Bytes of the tensors that a tree names: what `snapshot` takes for them. Raises CodecError for one of no known form."""
    if isinstance(tree, list):
        if depth > 3 * MAX_DEPTH:
            raise CodecError("", "nested too deeply")
        return sum(named_bytes(part, depth + 1) for part in tree)
    if not isinstance(tree, dict):
        return 0
    match tree:
        case {"dtype": str(name), "shape": list(shape)} if name in DTYPES and all(type(size) is int for size in shape):
            return math.prod(shape) * DTYPES[name].itemsize
    raise CodecError("", f"a tensor {str(tree)[:60]}")


class _Writer:
    def __init__(self) -> None:
        self.storages: list[torch.UntypedStorage] = []
        self._index: dict[tuple[str, int], int] = {}

    def node(self, value: Any, where: str, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise CodecError(where, f"nested more than {MAX_DEPTH} deep, or contains itself")
        if isinstance(value, torch.Tensor):
            return ["tensor", self._tensor(value, where)]
        if _exactly(value, tuple, list):
            return [type(value).__name__, [self.node(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]]
        if type(value) is dict:
            pairs = value.items()
            return ["dict", [[self.node(k, where, depth + 1), self.node(v, f"{where}[{k!r}]", depth + 1)] for k, v in pairs]]
        return _scalar_node(value, where)

    def _tensor(self, tensor: torch.Tensor, where: str) -> dict[str, Any]:
        if not _exactly(tensor, *TENSOR_TYPES):
            raise CodecError(where, f"is of type {_type_name(tensor)}; only plain torch.Tensor is accepted")
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.dtype not in DTYPE_NAMES:
            kind = f"layout {tensor.layout}, dtype {tensor.dtype}, device {tensor.device}"
            raise CodecError(where, f"is a tensor of {kind}; only strided tensors of plain dtypes on cpu or a GPU travel")
        if tensor.is_conj() or tensor.is_neg():
            raise CodecError(where, "is a conjugated or negated view; call .resolve_conj().resolve_neg()")
        return {
            "storage": self._storage(tensor.untyped_storage()),
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(),
        }

    def _storage(self, storage: torch.UntypedStorage) -> int:
        key = (str(storage.device), storage.data_ptr()) if storage.nbytes() else ("empty", len(self.storages))
        if key not in self._index:
            self._index[key] = len(self.storages)
            self.storages.append(storage)
        return self._index[key]


def _scalar_node(value: Any, where: str) -> list[Any]:
    if value is None:
        return ["none", None]
    if _exactly(value, bool, int, str):
        return [type(value).__name__, value]
    if type(value) is float:
        return ["float", value.hex()]  # exact, and JSON has no infinities
    if type(value) is torch.dtype and value in DTYPE_NAMES:
        return ["dtype", DTYPE_NAMES[value]]
    if type(value) is torch.device:
        return ["device", str(value)]
    raise CodecError(where, f"is of type {_type_name(value)}; only tensors, tuples, lists, dicts and plain values travel")


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Reader:
    def __init__(self, storages: list[torch.UntypedStorage]):
        self._storages, self._nodes = storages, 0

    def node(self, tree: Any, where: str, depth: int) -> Any:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise CodecError(where, f"more than {MAX_DEPTH} levels or {MAX_NODES} nodes")
        if not isinstance(tree, list) or len(tree) != 2 or not isinstance(tree[0], str):
            raise CodecError(where, "not a [kind, content] node")
        kind, content = tree
        if kind == "tensor":
            return self._tensor(content, where)
        if kind in ("tuple", "list"):
            items = [self.node(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(_expect(content, list, where))]
            return tuple(items) if kind == "tuple" else items
        if kind == "dict":
            return dict(self._pair(pair, where, depth) for pair in _expect(content, list, where))
        return _scalar_value(kind, content, where)

    def _pair(self, pair: Any, where: str, depth: int) -> tuple[Any, Any]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise CodecError(where, "not a [key, value] pair")
        key = self.node(pair[0], where, depth + 1)
        if not isinstance(key, str | int | float | bool | None | tuple):
            raise CodecError(where, "a key that cannot be hashed")
        return key, self.node(pair[1], f"{where}[{key!r}]", depth + 1)

    def _tensor(self, fields: Any, where: str) -> torch.Tensor:
        fields = _expect(fields, dict, where)
        shape, stride = (_sizes(fields.get(name), where) for name in ("shape", "stride"))
        (index, offset), name = _sizes([fields.get("storage"), fields.get("offset")], where), fields.get("dtype")
        if not isinstance(name, str) or name not in DTYPES or len(shape) != len(stride) or index >= len(self._storages):
            raise CodecError(where, "not the description of a tensor")
        storage, dtype = self._storages[index], DTYPES[name]
        if span_bytes(shape, stride, offset, dtype) > storage.nbytes():
            raise CodecError(where, f"shape {shape} and stride {stride} reach beyond its {storage.nbytes()} bytes")
        nothing = torch.empty(0, dtype=torch.uint8, device=storage.device)  # deterministic algorithms can fill no fp4
        return nothing.view(dtype).set_(storage, offset, shape, stride)


def span_bytes(shape: list[int], stride: list[int], offset: int, dtype: torch.dtype) -> int:
    """Bytes from the start of the storage to the end of the last element; 0 for a tensor without elements."""
    if 0 in shape:
        return 0
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return (last + 1) * dtype.itemsize


def _sizes(values: Any, where: str) -> list[int]:
    items = _expect(values, list, where)
    if len(items) > 64 or not all(type(item) is int and 0 <= item < 1 << 62 for item in items):
        raise CodecError(where, "sizes must be non-negative integers")
    return items


def _expect(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise CodecError(where, f"{type(value).__name__} where {kind.__name__} belongs")
    return value


def _scalar_value(kind: str, content: Any, where: str) -> Any:
    plain = {"bool": bool, "int": int, "str": str, "none": type(None)}
    if kind in plain and type(content) is plain[kind]:
        return content
    try:
        if kind == "float":
            return float.fromhex(content)
        if kind == "dtype":
            return DTYPES[content]
        if kind == "device":
            return torch.device(content)
    except (TypeError, ValueError, KeyError, RuntimeError, OverflowError):
        pass
    raise CodecError(where, f"not a value: {kind!r}")
