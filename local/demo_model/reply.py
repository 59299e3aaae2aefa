"""What the demo model says: a search, an answer of quotes, or honestly that it has none."""

import re
from dataclasses import dataclass

from local.demo_model.conversation import Question
from local.demo_model.extract import Quote, beginnings, openings, quotes
from local.demo_model.language import is_chinese

_MOST_SEARCHES = 2
_LONGEST_QUERY = 200

_GREETING = re.compile(
    r"\W*(hi|hello|hey|hallo|good (morning|afternoon|evening)|bye|goodbye|see you|thanks?|thank you|thx|ok(ay)?|great|nice|cool|test"
    r"|你好|您好|嗨|哈喽|早上好|下午好|晚上好|早|再见|拜拜|谢谢|多谢|感谢|好的|好)"
    r"((,? )?(there|you|all|everyone|very much|so much|a lot|marginalia)|[啊呀了吗呢吧你您们]|非常|大家)*\W*",
    re.IGNORECASE,
)
_ABOUT_ITSELF = re.compile(
    r"\W*(who|what) are you\W*|\W*what can you do\W*|\W*are you (an ai|a bot|real|chatgpt)\W*|\W*help\W*"
    r"|\W*你是(谁|什么)\W*|\W*你(能|会|可以)(做|干)?(什么|啥)\W*|\W*帮助\W*",
    re.IGNORECASE,
)

_WHAT_I_AM = {
    False: (
        "I am Marginalia's bundled demo model. I look words up in your notes and quote the sentences that fit, with their sources;"
        " I do not write or reason. Ask me something your notes may answer, or set MODEL_BASE_URL, MODEL_API_KEY and MODEL_NAME to"
        " use a real model."
    ),
    True: (
        "我是 Marginalia 自带的演示模型：只会在你的笔记里查找字词，并引用相关的句子和出处，不会写作或推理。"
        "请问一个笔记里可能有答案的问题；想用真正的模型，请设置 MODEL_BASE_URL、MODEL_API_KEY 和 MODEL_NAME。"
    ),
}
_HELLO = {False: "Hello! ", True: "你好！"}
_NO_SEARCH = {
    False: "I cannot search your notes in this conversation, and without them I have nothing to quote. ",
    True: "这次对话里没有打开笔记检索，没有笔记我就没有可以引用的内容。",
}
_NOTHING = {
    False: "Your notes say nothing about {topic} that I could find",
    True: "我在你的笔记里没有找到关于{topic}的内容",
}
_NOTHING_END = {
    False: (
        " (I looked for {searches}). I am an extractive demo model: I only quote sentences that share words with the question."
        " Set MODEL_BASE_URL, MODEL_API_KEY and MODEL_NAME for a real one."
    ),
    True: (
        "（查找过：{searches}）。我是演示模型，只会引用与问题字词相同的句子；"
        "想用真正的模型，请设置 MODEL_BASE_URL、MODEL_API_KEY 和 MODEL_NAME。"
    ),
}
_FAILED = {
    False: "The search in your notes failed, so I have nothing to quote. Please ask again in a moment.",
    True: "笔记检索失败了，所以没有可以引用的内容。请稍后再问一次。",
}
_LEAD_IN = {False: "Your notes say:", True: "你的笔记里写道："}
_BEGINNING = {
    False: "I can only quote, not summarise. The note begins:",
    True: "我只会引用，不会总结。这篇笔记的开头是：",
}
_OTHER_LANGUAGE = {
    False: "By its meaning the search also found these notes in Chinese, whose words I cannot compare with your question:",
    True: "检索还按意思找到了这些英文笔记，我无法拿它们的字词与问题相比：",
}
_THINK_SEARCH = {
    False: "This is about: {words}. I will look for these words in the notes.",
    True: "问题涉及：{words}。先在笔记里查这些词。",
}
_THINK_AGAIN = {
    False: "Nothing that fits. I will try fewer words: {words}.",
    True: "没有合适的内容，换少一些的词再查：{words}。",
}
_THINK_QUOTE = {
    False: "Passages found: {count}. I quote the sentences that share most with the question.",
    True: "找到 {count} 段；引用与问题最相近的句子。",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send: first the thinking, then a search for `query`, or the text."""

    thinking: str = ""
    text: str = ""
    query: str | None = None


def reply_to(question: Question) -> Reply:
    """Decides by what is known: search first, once more with fewer words where nothing fits, then quote or say so."""
    chinese = is_chinese(question.text)
    if not question.searches and _is_small_talk(question.text):
        return Reply(text=_small_talk(question.text, chinese=chinese))
    found = quotes(question)
    if found:
        thinking = _THINK_QUOTE[chinese].format(count=len(question.sources) + len(question.mentioned))
        return Reply(thinking, _LEAD_IN[chinese] + listed(found))
    needs_topic = not question.words.spoken or not question.can_search
    if needs_topic and not question.searches and (found := beginnings(question)):
        return Reply(text=_BEGINNING[chinese] + listed(found))
    query = _next_query(question) if question.can_search else None
    if query is not None:
        template = _THINK_AGAIN if question.searches else _THINK_SEARCH
        return Reply(template[chinese].format(words=query), query=query)
    return Reply(text=_without_quotes(question, chinese=chinese))


def _without_quotes(question: Question, *, chinese: bool) -> str:
    if not question.searches:
        return _NO_SEARCH[chinese] + _WHAT_I_AM[chinese]
    if not question.sources and question.failed:
        return _FAILED[chinese]
    topic = ("、" if chinese else " ").join((*question.earlier.spoken, *question.words.spoken)) or ("它" if chinese else "that")
    searches = ("、" if chinese else ", ").join(f"“{_unmarked(query)}”" for query in question.searches)
    nothing = _NOTHING[chinese].format(topic=_unmarked(topic)) + _NOTHING_END[chinese].format(searches=searches)
    other = openings(question)
    return f"{nothing}\n\n{_OTHER_LANGUAGE[chinese]}{listed(other)}" if other else nothing


def _next_query(question: Question) -> str | None:
    if len(question.searches) >= _MOST_SEARCHES:
        return None
    words = (*question.earlier.spoken, *question.words.spoken) or (question.text.strip(),)
    if question.searches:
        # The longest words are the most telling ones; identifiers are long too.
        longest = sorted(words, key=len, reverse=True)[: (len(words) + 1) // 2]
        words = tuple(word for word in words if word in longest)
    query = " ".join(words)[:_LONGEST_QUERY].strip()
    return query if query and query not in question.searches else None


def listed(found: list[Quote]) -> str:
    """The quotes with what they are cited by: one behind a blank line, several as a list."""
    if len(found) == 1:
        return f"\n\n{found[0].text} {found[0].mark}"
    return "\n" + "".join(f"\n- {quote.text} {quote.mark}" for quote in found)


def _is_small_talk(text: str) -> bool:
    return _GREETING.fullmatch(text) is not None or _ABOUT_ITSELF.fullmatch(text) is not None or not text.strip()


def _small_talk(text: str, *, chinese: bool) -> str:
    thanks = re.search(r"thank|thx|谢|感谢", text, re.IGNORECASE)
    if thanks:
        return "不客气。还想查什么，尽管问。" if chinese else "You are welcome. Ask me whatever else your notes may hold."
    greeted = _GREETING.fullmatch(text) is not None
    return (_HELLO[chinese] if greeted else "") + _WHAT_I_AM[chinese]


def _unmarked(text: str) -> str:
    """The user's words, unable to be taken for a citation."""
    return text.replace("[", "(").replace("]", ")").replace("【", "（").replace("】", "）")
