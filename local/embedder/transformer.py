"""A BERT encoder in NumPy: its products run in the library's BLAS.

The weights stand whole in memory, not in the 4 or 8 bits that they are kept in: a product of whole numbers costs half the time of one that
takes blocks apart first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float32]

# Rows whose inner states fit the processor's second cache.
_ROWS = 32
# GELU by its usual approximation, x / (1 + exp(-2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))).
_GELU_CUBE = np.float32(0.044715)
_GELU_SCALE = np.float32(-2 * (2 / np.pi) ** 0.5)


@dataclass(frozen=True, slots=True)
class Linear:
    """`weights`: a row per input, a column per output."""

    weights: Floats
    bias: Floats

    def __call__(self, states: Floats) -> Floats:
        """Of each row."""
        product: Floats = states @ self.weights
        product += self.bias
        return product


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalisation."""

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
class Attention:
    """Queries, keys and values side by side, and what mixes the heads' answers."""

    attended: Linear
    mixed: Linear
    heads: int

    @classmethod
    def of(cls, query: Linear, key: Linear, value: Linear, mixed: Linear, heads: int) -> Self:
        """From the four parts as models keep them."""
        # Scaled once here instead of each time.
        scale = np.float32((query.weights.shape[1] // heads) ** -0.5)
        weights = np.concatenate([query.weights * scale, key.weights, value.weights], axis=1)
        return cls(Linear(weights, np.concatenate([query.bias * scale, key.bias, value.bias])), mixed, heads)

    def __call__(self, states: Floats, spans: Sequence[slice]) -> Floats:
        """Each token's mixture of the values of its own text's tokens."""
        width = states.shape[1]
        size = width // self.heads
        attended = self.attended(states).reshape(len(states), 3, self.heads, size)
        found = np.empty((len(states), width), np.float32)
        for number, head in enumerate(np.ascontiguousarray(attended.transpose(2, 1, 0, 3))):
            columns = slice(number * size, (number + 1) * size)
            for span in spans:
                queries, keys, values = head[:, span]
                weights = queries @ keys.T
                weights -= weights.max(axis=1, keepdims=True)
                np.exp(weights, out=weights)
                mixed = weights @ values
                mixed /= weights.sum(axis=1, keepdims=True)
                found[span, columns] = mixed
        return self.mixed(found)


@dataclass(frozen=True, slots=True)
class Layer:
    """One of the encoder."""

    attention: Attention
    after_attention: Norm
    inner: Linear
    outer: Linear
    after_inner: Norm


@dataclass(frozen=True, slots=True)
class Transformer:
    """Token numbers to vectors. Threads may share it.

    `words`: the tokens' own states, a row per number; `positions`: what is added for the first, second, ... of a text.
    """

    words: Callable[[list[int]], Floats]
    positions: Floats
    norm: Norm
    layers: Sequence[Layer]

    def means(self, texts: Sequence[Sequence[int]]) -> Floats:
        """A row per text: the mean of its tokens' last states, not normalised. Each has at least one number, at most one per position.

        The texts are computed at once, which costs less than one after the other: the shorter they are the more.
        """
        ends = list(accumulate(map(len, texts), initial=0))
        spans = [slice(start, end) for start, end in pairwise(ends)]
        states = self.words([number for text in texts for number in text])
        for span in spans:
            states[span] += self.positions[: span.stop - span.start]
        self.norm(states)
        for layer in self.layers:
            states += layer.attention(states, spans)
            layer.after_attention(states)
            inner = layer.inner(states)
            _gelu(inner)
            states += layer.outer(inner)
            layer.after_inner(states)
        return np.stack([states[span].mean(axis=0) for span in spans])


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
