"""The model itself, in NumPy: a BERT encoder whose products run in the library's BLAS.

The weights stand whole in memory (85 MB), not in 4 bits: a product of whole numbers costs half the time of one that takes the blocks
apart first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from local.embedder.model_file import Floats, ModelFile

# Rows whose inner states fit the processor's second cache.
_ROWS = 32
# GELU by its usual approximation, x / (1 + exp(-2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))).
_GELU_CUBE = np.float32(0.044715)
_GELU_SCALE = np.float32(-2 * (2 / np.pi) ** 0.5)


@dataclass(frozen=True, slots=True)
class _Linear:
    weights: Floats
    bias: Floats

    def __call__(self, states: Floats) -> Floats:
        product: Floats = states @ self.weights
        product += self.bias
        return product


@dataclass(frozen=True, slots=True)
class _Norm:
    weights: Floats
    bias: Floats
    epsilon: float

    def __call__(self, states: Floats) -> None:
        """In place, each row for itself."""
        states -= states.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", states, states) / states.shape[1]
        states *= (1 / np.sqrt(variance + self.epsilon))[:, None]
        states *= self.weights
        states += self.bias


@dataclass(frozen=True, slots=True)
class _Layer:
    attended: _Linear  # queries, keys and values side by side; the queries are scaled already
    mixed: _Linear
    after_attention: _Norm
    inner: _Linear
    outer: _Linear
    after_inner: _Norm


class Transformer:
    """Token numbers to vectors. Threads may share it."""

    def __init__(self, file: ModelFile) -> None:
        shape = self._shape = file.shape
        self._file = file
        self._positions = file.numbers("emb.pos").reshape(-1, shape.width) + file.numbers("emb.type")[: shape.width]
        self._norm = self._norm_of("emb.ln")
        self._layers = [self._layer(f"l{number}") for number in range(shape.layers)]

    def means(self, texts: Sequence[Sequence[int]]) -> Floats:
        """A row per text: the mean of its tokens' last states, not normalised. Each has 1 to the shape's `tokens` numbers.

        The texts are computed at once, which costs less than one after the other: the shorter they are the more.
        """
        ends = list(accumulate(map(len, texts), initial=0))
        spans = [slice(start, end) for start, end in pairwise(ends)]
        states = self._file.rows("emb.word", self._shape.width, [number for text in texts for number in text])
        for span in spans:
            states[span] += self._positions[: span.stop - span.start]
        self._norm(states)
        for layer in self._layers:
            states += layer.mixed(self._attention(layer.attended(states), spans))
            layer.after_attention(states)
            inner = layer.inner(states)
            _gelu(inner)
            states += layer.outer(inner)
            layer.after_inner(states)
        return np.stack([states[span].mean(axis=0) for span in spans])

    def _attention(self, attended: Floats, spans: Sequence[slice]) -> Floats:
        """Each token's mixture of the values of its own text's tokens."""
        size = self._shape.width // self._shape.heads
        found = np.empty((len(attended), self._shape.width), np.float32)
        heads = np.ascontiguousarray(attended.reshape(len(attended), 3, self._shape.heads, size).transpose(2, 1, 0, 3))
        for number, head in enumerate(heads):
            columns = slice(number * size, (number + 1) * size)
            for span in spans:
                queries, keys, values = head[:, span]
                weights = queries @ keys.T
                weights -= weights.max(axis=1, keepdims=True)
                np.exp(weights, out=weights)
                mixed = weights @ values
                mixed /= weights.sum(axis=1, keepdims=True)
                found[span, columns] = mixed
        return found

    def _layer(self, name: str) -> _Layer:
        width, inner = self._shape.width, self._shape.inner
        scale = np.float32((width // self._shape.heads) ** -0.5)
        query, key, value = (self._linear(f"{name}.{part}", width) for part in "qkv")
        attended = _Linear(
            np.concatenate([query.weights * scale, key.weights, value.weights], axis=1),
            np.concatenate([query.bias * scale, key.bias, value.bias]),
        )
        return _Layer(
            attended,
            self._linear(f"{name}.ao", width),
            self._norm_of(f"{name}.aln"),
            self._linear(f"{name}.fi", width),
            self._linear(f"{name}.fo", inner),
            self._norm_of(f"{name}.oln"),
        )

    def _linear(self, name: str, columns: int) -> _Linear:
        return _Linear(np.ascontiguousarray(self._file.matrix(f"{name}.w", columns).T), self._file.numbers(f"{name}.b"))

    def _norm_of(self, name: str) -> _Norm:
        return _Norm(self._file.numbers(f"{name}.w"), self._file.numbers(f"{name}.b"), self._shape.epsilon)


def _gelu(states: Floats) -> None:
    """In place."""
    # A large negative number overflows to infinity, and what is divided by it becomes the zero that it should.
    with np.errstate(over="ignore"):
        for start in range(0, len(states), _ROWS):
            rows = states[start : start + _ROWS]
            divisor = rows * rows
            divisor *= _GELU_CUBE
            divisor += np.float32(1)
            divisor *= rows
            divisor *= _GELU_SCALE
            np.exp(divisor, out=divisor)
            divisor += np.float32(1)
            rows /= divisor
