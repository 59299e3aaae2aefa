"""How long citations are looked for in hostile Markdown.

For each shape of `tests.support.hostile_markdown`: the CPU milliseconds for a text of a million characters, for `cited_numbers` and for
`without_numbers`, the best of three; and how much longer a text of twice the length takes, which is 2 where the work grows with the
text. The worst come first. Milliseconds belong to the machine, the ratios do not.

`python -m bench.citations [--quick]`
"""

import sys
import time
from collections.abc import Callable

from services.agent.citations import cited_numbers, without_numbers
from tests.support.hostile_markdown import SHAPES

CHARACTERS = 1_000_000
NUMBERS = (1, 2, 3)
NAMES = {1: "a note.md", 2: "another note.md"}


def milliseconds(work: Callable[[], object], times: int) -> float:
    """CPU time of the best of so many runs."""
    best = float("inf")
    for _ in range(times):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best * 1000


def row(name: str, characters: int) -> tuple[float, str]:
    """How long it takes, and the line of the table."""
    once, twice = SHAPES[name](characters), SHAPES[name](2 * characters)
    per_million = CHARACTERS / len(once)
    cited = milliseconds(lambda: cited_numbers(once, NUMBERS), 3)
    ratio = milliseconds(lambda: cited_numbers(twice, NUMBERS), 3) / cited * 2 * len(once) / len(twice)
    named = milliseconds(lambda: without_numbers(once, NAMES), 1)
    return cited * per_million, f"| {name.replace('|', '¦'):40} | {cited * per_million:7.0f} | {named * per_million:8.0f} | {ratio:5.2f} |"


def main() -> None:
    """Print the table."""
    characters = CHARACTERS // 10 if "--quick" in sys.argv else CHARACTERS
    rows = sorted((row(name, characters) for name in SHAPES), reverse=True)
    print(f"| {'shape':40} | cited   | without  | ratio |")
    print(f"|{'-' * 42}|--------:|---------:|------:|")
    print("\n".join(line for _, line in rows))
    print(f"{sum(cited <= 100 for cited, _ in rows)} of {len(rows)} shapes take no more than 100 ms.")


if __name__ == "__main__":
    main()
