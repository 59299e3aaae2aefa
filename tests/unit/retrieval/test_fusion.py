"""Two rankings become one."""

from uuid import UUID

import pytest

from services.retrieval.fusion import WORDS_SHARE_NAME, fuse, words_share
from shared.contracts.index import Scored

A, B, C = (UUID(int=n) for n in range(3))


def leg(**scores: float) -> list[Scored]:
    ids = {"a": A, "b": B, "c": C}
    return [Scored(id=ids[name], score=score) for name, score in scores.items()]


def test_a_missing_leg_leaves_the_others_order() -> None:
    assert [one for one, _ in fuse(leg(b=3, a=2), [], 0.5, all_words=True)] == [B, A]
    assert [one for one, _ in fuse([], leg(c=0.9, a=0.2), 0.5, all_words=True)] == [C, A]
    assert fuse([], [], 0.5, all_words=True) == []


def test_a_leg_that_is_sure_outweighs_one_that_is_not() -> None:
    # By ranks these would tie; the words know only `a`, and to the vectors both are nearly the same.
    assert fuse(leg(a=9, b=1), leg(b=0.81, a=0.80), 0.5, all_words=True)[0][0] == A
    assert fuse(leg(a=2.0, b=1.9), leg(b=0.9, a=0.4), 0.5, all_words=True)[0][0] == B


def test_between_equals_the_words_decide() -> None:
    assert [one for one, _ in fuse(leg(b=5), leg(a=0.9, b=0.1), 0.5, all_words=True)] == [B, A]


def test_scores_lie_between_zero_and_one_and_one_hit_alone_is_the_best() -> None:
    assert fuse(leg(a=0.3), [], 0.5, all_words=True) == [(A, 1.0)]
    assert fuse(leg(a=0.3), leg(a=0.7), 0.5, all_words=True) == [(A, 1.0)]
    assert all(0 <= score <= 1 for _, score in fuse(leg(a=4, b=1), leg(c=0.9, b=-0.2), 0.5, all_words=False))


@pytest.mark.parametrize(
    "query",
    [
        "tern",
        "NX-7731-b",
        "what is h264?",
        "call foo_bar first",
        "os.path",
        "ConvertFromJson",
        "版本 v2 的配置",
        "自行车",
        "数据库迁移NX-7731-b",
    ],
)
def test_words_count_for_most_where_something_is_named(query: str) -> None:
    assert words_share(query) == WORDS_SHARE_NAME


@pytest.mark.parametrize(
    "query", ["feeding a starter", "boundary-layer flow at mach 2.0 in 1960", "面包酵种多久喂一次", "e.g. terns", "", "?"]
)
def test_a_sentence_names_nothing(query: str) -> None:
    assert words_share(query) < WORDS_SHARE_NAME


def test_the_passage_that_has_a_name_comes_first_whatever_the_vectors_say() -> None:
    assert fuse(leg(a=5), leg(b=0.9, c=0.89), words_share("NX-7731-b"), all_words=True)[0][0] == A


def test_words_count_for_more_in_chinese() -> None:
    assert words_share("feeding a starter") < words_share("面包酵种多久喂一次") == words_share("docker 部署")
