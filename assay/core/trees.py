"""Trees of a run's state: nested dicts with str keys, lists, tensors, arrays, scalars and plain values.

A tree is encoded as JSON with names in place of arrays, and the arrays by name; `difference` compares two trees bit by
bit.

Tensors have any shape.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Tree: TypeAlias = "torch.Tensor | np.ndarray[Any, Any] | np.generic | JSON | Sequence[Tree] | Mapping[str, Tree]"

PLAIN = (torch.Tensor, torch.nn.Parameter, np.ndarray, np.memmap)
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


def difference(a: Tree, b: Tree) -> list[str]:
    """Returns the paths at which two trees differ in type, dtype, shape or any bit, except that nan equals nan.
    Tuples equal lists, parameters equal tensors, and devices are not compared, since none of these is stored.
    """
    return list(_differences(a, b, ""))


def _differences(a: Any, b: Any, path: str) -> Iterator[str]:
    if any(isinstance(a, kind) and isinstance(b, kind) for kind in (Mapping, list | tuple)):
        x, y = (dict(node) if isinstance(node, Mapping) else dict(enumerate(node)) for node in (a, b))
        for key in x | y:
            inside = f"{path}.{key}" if path else str(key)
            yield from _differences(x[key], y[key], inside) if key in x and key in y else [inside]
    elif not _same(a, b):
        yield path or "root"


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) and not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    if not isinstance(a, torch.Tensor | np.ndarray | np.generic | float):
        return bool(a == b)
    x, y = as_tensor(a), as_tensor(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    x, y = (torch.view_as_real(z).flatten() if z.is_complex() else z for z in map(flat, (x, y)))
    if torch.equal(x.view(torch.uint8), y.view(torch.uint8)):
        return True
    same = (x.view(torch.uint8) == y.view(torch.uint8)).view(-1, x.itemsize).all(dim=1)
    return bool((same | (x.to(torch.float64).isnan() & y.to(torch.float64).isnan())).all())


class Arrays:
    """Collects the arrays of a tree under unique names; leaves that are the same memory are stored once."""

    def __init__(self) -> None:
        self.by_name: dict[str, torch.Tensor] = {}
        self._name_of: dict[tuple[object, ...], str] = {}

    def add(self, leaf: Any, path: str) -> str:
        """Returns the name under which the leaf is stored, taken from its path in the tree."""
        is_odd = isinstance(leaf, torch.Tensor) and (leaf.layout != torch.strided or leaf.is_meta)
        if type(leaf) not in PLAIN or is_odd or str(leaf.dtype).removeprefix("torch.") not in DTYPES:
            what = f"tree at {path or 'its root'} is a {type(leaf).__name__} of {leaf.dtype}"
            raise TypeError(f"{what}: only dense tensors and arrays of ordinary numbers can be stored")
        tensor = as_tensor(leaf)
        where = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        key = (*where, tensor.dtype, tensor.is_conj(), tensor.is_neg())
        if key in self._name_of and tensor.numel():
            return self._name_of[key]
        name = path or "root"
        while name in self.by_name or name == "__metadata__":
            name = f"{name}#{len(self.by_name)}"
        self.by_name[name], self._name_of[key] = tensor, name
        return name


@dataclass(frozen=True)
class Encoded:
    """A tree that is ready to be written: JSON with names in place of arrays, and the arrays by name, not copied."""

    state: bytes
    tensors: Mapping[str, torch.Tensor]

    @property
    def size(self) -> int:
        """The bytes that a checkpoint of it takes, but for a few of headers."""
        return len(self.state) + sum(tensor.nbytes for tensor in self.tensors.values())


def encoded(tree: Tree) -> Encoded:
    """Encodes a tree; TypeError or ValueError names the place of a value that cannot be stored."""
    arrays = Arrays()
    state = json.dumps(encode(tree, "", arrays)).encode()
    return Encoded(state, arrays.by_name)


def encode(node: Any, path: str, arrays: Arrays | None) -> Any:
    """Returns the tree as plain JSON values; arrays go to the collector, or raise TypeError without one."""
    if node is None or type(node) in (bool, int):
        return node
    if type(node) is float:
        return node if math.isfinite(node) else {"$": ["float", repr(node)]}
    if type(node) is str and not re.search("[\ud800-\udfff]", node):  # half a surrogate pair would not survive
        return node
    if isinstance(node, list | tuple):
        return [encode(child, f"{path}.{index}" if path else f"{index}", arrays) for index, child in enumerate(node)]
    if isinstance(node, Mapping):
        if odd := [key for key in node if type(key) is not str]:
            raise TypeError(f"tree at {path or 'its root'} has the key {odd[0]!r}: keys must be str")
        children = {key: encode(child, f"{path}.{key}" if path else key, arrays) for key, child in node.items()}
        return {"$": ["dict", children]} if "$" in children else children
    if arrays is not None and isinstance(node, torch.Tensor | np.ndarray | np.generic):
        kind = "tensor" if isinstance(node, torch.Tensor) else "array" if isinstance(node, np.ndarray) else "scalar"
        return {"$": [kind, arrays.add(np.asarray(node) if isinstance(node, np.generic) else node, path)]}
    raise TypeError(f"tree at {path or 'its root'} is a {type(node).__name__} that cannot be stored")


def decode(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Returns the tree of encoded JSON values, with arrays looked up by name."""
    if isinstance(node, list):
        return [decode(child, tensors) for child in node]
    if not isinstance(node, dict):
        return node
    kind, value = node.get("$", ("dict", node))
    if kind == "dict":
        return {key: decode(child, tensors) for key, child in value.items()}
    if kind == "float":
        return float(value)
    if kind == "tensor":
        return tensors[value]
    array = tensors[value].cpu().numpy()
    return {"array": array, "scalar": array[()]}[kind]


def tensor_blocks(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    """Yields a safetensors file: the header, then each tensor, widest elements first so that each is aligned.
    Written here because the writer of safetensors needs contiguous tensors and returns one copy of them all.
    """
    names = sorted(tensors, key=lambda name: -tensors[name].itemsize)
    header, end = {}, 0
    for name in names:
        dtype, start, end = DTYPES[str(tensors[name].dtype)[6:]], end, end + tensors[name].nbytes
        header[name] = {"dtype": dtype, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield memoryview(flat(tensors[name]).view(torch.uint8).numpy())  # type: ignore[arg-type]


def as_tensor(leaf: Any) -> torch.Tensor:
    """Returns the same memory as a tensor; a copy if it is not in C order, not writable, or of a negative stride."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    array = np.require(leaf, None, ["C", "W"])
    return torch.from_numpy(array.copy() if min(array.strides, default=0) < 0 else array)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elements in C order on the CPU, with stride 1 even for one element, which reshape would not give."""
    return tensor.cpu().resolve_conj().resolve_neg().contiguous().as_strided((tensor.numel(),), (1,))
