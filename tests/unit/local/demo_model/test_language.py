import pytest

from local.demo_model.language import content_words, is_chinese, points_back, terms


@pytest.mark.parametrize(
    ("question", "spoken"),
    [
        ("How often should I feed a sourdough starter?", ("feed", "sourdough", "starter")),
        ("What does rag_search return, and what is sync_interval: always?", ("rag_search", "return", "sync_interval", "always")),
        ("What do my notes say about C++ and v1.2?", ("C++", "v1.2")),
        ("请问泡绿茶用多少度的水？", ("泡绿茶", "度的水")),
        ("Marginalia 的 rag_search 是什么？", ("Marginalia", "rag_search")),
        ("自行车链条多久上一次油？", ("自行车链条", "上一次油")),
    ],
)
def test_the_words_of_a_question_are_those_that_name_its_topic(question: str, spoken: tuple[str, ...]) -> None:
    assert content_words(question).spoken == spoken


def test_english_is_compared_by_stems_and_chinese_by_pairs() -> None:
    assert terms("Feeding starters") == terms("feed starter") == terms("It is fed to the starter")
    assert terms("泡绿茶") == ["泡绿", "绿茶"]
    assert {"sync_interval", "sync", "interval"} <= set(terms("sync_interval"))


@pytest.mark.parametrize(
    ("text", "chinese"), [("怎么用 Obsidian?", True), ("What is 笔记 in the English interface?", False), ("", False), ("hello", False)]
)
def test_a_question_is_answered_in_its_own_language(text: str, chinese: bool) -> None:
    assert is_chinese(text) is chinese


@pytest.mark.parametrize("question", ["and how is it used?", "What about salt?", "Why?", "那水温呢？", "它怎么保存？"])
def test_a_follow_up_points_back(question: str) -> None:
    assert points_back(question)


@pytest.mark.parametrize("question", ["How is a starter fed?", "绿茶怎么保存？"])
def test_a_question_with_a_topic_stands_alone(question: str) -> None:
    assert not points_back(question)
