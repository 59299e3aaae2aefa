"""Words of a text in English and Chinese: what to search for, and what to compare by."""

# ruff: noqa: SIM905 - lists of words read better as words

import re
from functools import lru_cache
from typing import NamedTuple

import Stemmer

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W_][\w'’+#.\-/:]*[\w+#]|[^\W_]")
_IS_CJK = re.compile(rf"[{_CJK}]")
_PLAIN = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")

_STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any anybody anyone anything are as ask at be because been before being below between
    both but by can cannot could describe did do does doing done down during each else ever every explain few find for from further
    get give given go goes going got had has have having he her here hers him his how i if in information into is it its itself just
    kind know let like list long look made make many may me mean means might more most much must my myself need no nor not now of off
    often on once one only or other our ours out over own per please put said same say says she should show so some somebody someone
    something such summarise summarize summary tell than that the their theirs them then there these they thing things this those
    through to too under until up us use very want was way we well were what whatever when where whether which while who whom whose
    why will with within without would write written wrote yes you your yours yourself anyhow hello hi hey thanks thank okay ok
    """.split()
)
_THE_NOTES = re.compile(r"\b(?:(?:in|from|of|to|with)\s+)?(?:my|our|these)\s+notes?\b", re.IGNORECASE)
# Kept apart from the above: they carry no topic, but asking by them is asking about the turn before.
_POINTING_WORDS = frozenset("it its this that these those they them their he she him her there one ones former latter same".split())
_OPENING_WORDS = frozenset("and but so also then or what about why how else more again".split())
_POINTING_CJK = re.compile(
    r"^(那么?|然后|还有|另外|以及|所以|为什么|怎么用|再)"
    r"|它们?|他们?|她们?|这个|那个|这些|那些|前者|后者|其中|上面|上述|刚才"
)

# Longest first, since they are taken out in this order.
_CJK_STOP_PHRASES = tuple(
    sorted(
        """
        请问 告诉我 我想知道 想知道 帮我 给我 介绍一下 解释一下 说明一下 总结一下 介绍 解释 一下 有没有 是不是 能不能 可不可以 要不要
        什么时候 什么是 是什么 为什么 为何 什么 怎么样 怎么办 怎么 怎样 如何 哪一个 哪些 哪个 哪里 哪儿 多少 多久 几个 几次 几种 关于
        我的笔记里 我的笔记 笔记里面 笔记里 笔记中 笔记 里面 有关 可以 应该 需要 我们 你们 他们 它们 这个
        那个 这些 那些 哪 谁 吗 呢 吧 啊 呀 我 你 您 它 请 那么 那 然后 还有 另外
        """.split(),
        key=len,
        reverse=True,
    )
)
_CJK_STOPS = re.compile("|".join(map(re.escape, _CJK_STOP_PHRASES)))
_CJK_PARTICLES = re.compile(r"^[的了是在和与有要用把被]+|[的了是在和与有要用把被]+$")
_IRREGULAR = {
    "fed": "feed", "kept": "keep", "bought": "buy", "built": "build", "sent": "send", "spent": "spend", "held": "hold", "taught": "teach",
    "thought": "think", "ran": "run", "went": "go", "took": "take", "taken": "take", "chose": "choose", "chosen": "choose",
    "broke": "break", "broken": "break", "grew": "grow", "grown": "grow", "began": "begin", "begun": "begin", "drank": "drink",
    "froze": "freeze", "frozen": "freeze", "rose": "rise", "risen": "rise", "left": "leave", "lost": "lose", "paid": "pay",
}  # fmt: skip
_stemmer = Stemmer.Stemmer("english")


class Words(NamedTuple):
    """What a question is about.

    `spoken` are its content words as they were written, for a search; `terms` what sentences are compared by: stems, and pairs of
    characters for Chinese.
    """

    spoken: tuple[str, ...]
    terms: frozenset[str]


def is_chinese(text: str) -> bool:
    """Whether to answer in Chinese: at least a third of what is written is, counting a Latin word as one character."""
    tokens = _TOKEN.findall(text)
    chinese = sum(len(token) for token in tokens if _IS_CJK.match(token))
    latin = sum(1 for token in tokens if not _IS_CJK.match(token))
    return chinese > 0 and chinese * 2 >= latin


def content_words(question: str) -> Words:
    """The question without the words that only make it a question; identifiers stay whole."""
    spoken: list[str] = []
    for token in _TOKEN.findall(_THE_NOTES.sub(" ", question)):
        if _IS_CJK.match(token):
            spoken += [part for piece in _CJK_STOPS.split(token) if (part := _CJK_PARTICLES.sub("", piece))]
        elif _bare(token) not in _STOP_WORDS:
            spoken.append(token)
    unique = tuple(dict.fromkeys(spoken))
    return Words(unique, frozenset(term for word in unique for term in terms(word)))


def terms(text: str) -> list[str]:
    """What a text is compared by, in order, without stop words."""
    found: list[str] = []
    for token in _TOKEN.findall(text):
        if _IS_CJK.match(token):
            found += [token[at : at + 2] for at in range(len(token) - 1)] or [token]
        elif (bare := _bare(token)) not in _STOP_WORDS:
            found += _latin_terms(token, bare)
    return found


def points_back(question: str) -> bool:
    """Whether a question needs the one before it: "and how is it used?"."""
    tokens = [_bare(token) for token in _TOKEN.findall(question)]
    if not tokens:
        return False
    if _IS_CJK.search(question):
        return _POINTING_CJK.search(question) is not None
    if any(token in _POINTING_WORDS for token in tokens):
        return True
    return tokens[0] in _OPENING_WORDS and len(content_words(question).spoken) < 2


def _latin_terms(token: str, bare: str) -> list[str]:
    if _PLAIN.fullmatch(token):
        return [_stem(bare)]
    # An identifier, also found by its parts: rag_search, sync-interval, v1.2, readyz.
    parts = [part for part in re.split(r"[\W_]+", bare) if len(part) > 1 and part not in _STOP_WORDS]
    return [bare, *(_stem(part) for part in parts if part != bare)]


def _bare(token: str) -> str:
    lowered = token.lower().replace("’", "'")
    return lowered.removesuffix("'s")


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(_IRREGULAR.get(word, word)))
