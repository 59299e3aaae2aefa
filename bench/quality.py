"""How well passages are found: `python -m bench.quality <directory with sets.py> [--vaults DIR] [--set NAME] [--cache DIR] [--words-only]`.

Each passage of a set is indexed as a note, as the service does it (cut, words, vectors, fusion), in the embedded engine. Printed per set:
nDCG@10, Recall@10 and MRR@10 of words, vectors and hybrid, beside the baselines that were measured elsewhere on the same sets. With
`--vaults` also a search over each of the vaults below that directory: a section's heading asks for the section, among the texts of all.

Vectors are kept in `--cache` from one run to the next: all sets together take an hour of one core.
"""

import argparse
import base64
import hashlib
import importlib.util
import itertools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from local.index_shard import Shard
from services.retrieval.chunking import chunk_note
from services.retrieval.fusion import fuse, words_share
from services.retrieval.passages import cut_note, embedded_text
from services.retrieval.search import HITS_PER_LEG
from services.retrieval.tokens import query_vector
from shared.contracts.index import Filter, Point, Search
from shared.contracts.notes import Note

if TYPE_CHECKING:
    from local.embedder.model import Model

WORKSPACE = UUID(int=1)
PASSAGES_AT_ONCE = 8

type Row = tuple[float, float, float]

# Of the sets that have them: BM25 over whole passages, and the best of some twenty fusions of it with six models.
BASELINES: dict[str, dict[str, Row]] = {
    "cmrc2018": {"BM25 uni+bigrams": (0.9828, 0.9981, 0.9776), "best fusion known": (0.9906, 0.9984, 0.9880)},
    "cranfield": {"BM25 stems": (0.3845, 0.3988, 0.5282), "best fusion known": (0.4350, 0.4594, 0.5574)},
    "qmsum": {"BM25 stems": (0.5409, 0.5278, 0.7152), "best fusion known": (0.5617, 0.5578, 0.7075)},
}
# The first two are for tuning.
SETS = ("cmrc2018_trial", "qmsum_val", *BASELINES)


@dataclass(frozen=True, slots=True)
class TestSet:
    """Passages and queries by name. `candidates`: what a query is searched among, where not among all."""

    corpus: Mapping[str, str]
    queries: Mapping[str, str]
    relevant: Mapping[str, set[str]]
    candidates: Mapping[str, list[str]] | None = None


def loaded(directory: Path) -> ModuleType:
    """The directory's `sets.py`."""
    spec = importlib.util.spec_from_file_location("sets", directory / "sets.py")
    assert spec is not None
    assert spec.loader is not None
    sets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sets)
    return sets


def named(sets: ModuleType, name: str) -> TestSet:
    """One of its sets."""
    load = {
        "cmrc2018_trial": lambda: sets.cmrc2018("cmrc2018_trial.json"),
        "qmsum_val": lambda: sets.qmsum(file="qmsum_val.jsonl"),
        "cmrc2018": sets.cmrc2018,
        "cranfield": sets.cranfield,
        "qmsum": sets.qmsum,
    }
    return TestSet(*load[name]())


def headings(vault: Path) -> TestSet:
    """The sections of a vault's notes without their headings, and the headings that stand over no other section."""
    corpus: dict[str, str] = {}
    asked: dict[str, list[str]] = {}
    for path in sorted(vault.rglob("*.md")):
        content = path.read_text("utf-8", errors="replace")
        sections = itertools.groupby(chunk_note(WORKSPACE, content), key=lambda chunk: chunk.heading_path)
        for number, (heading_path, chunks) in enumerate(sections):
            name = f"{path.relative_to(vault)} {number}"
            corpus[name] = "\n\n".join(chunk.text for chunk in chunks)
            if heading_path and len(corpus[name]) > 2 * len(heading_path[-1]):
                asked.setdefault(heading_path[-1], []).append(name)
    once = {heading: names[0] for heading, names in asked.items() if len(names) == 1}
    return TestSet(corpus, {name: heading for heading, name in once.items()}, {name: {name} for name in once.values()})


class Vectors:
    """The bundled model's vectors, kept in a file."""

    def __init__(self, cache: Path | None) -> None:
        # Read when NumPy's BLAS begins.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from local.embedder.model import NAME

        self._model: Model | None = None
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
        self._kept = sqlite3.connect(":memory:" if cache is None else cache / f"{NAME}.sqlite")
        self._kept.execute("CREATE TABLE IF NOT EXISTS v (k BLOB PRIMARY KEY, v BLOB)")

    def of(self, texts: Sequence[str], kind: str) -> Iterator[str]:
        """In order, as they travel."""
        for some in itertools.batched(texts, PASSAGES_AT_ONCE):
            keys = [hashlib.sha256(f"{kind}\0{text}".encode()).digest() for text in some]
            found = [self._kept.execute("SELECT v FROM v WHERE k = ?", (key,)).fetchone() for key in keys]
            if None in found:
                found = [(vector,) for vector in self._make(some, kind)]
                self._kept.executemany("INSERT OR REPLACE INTO v VALUES (?, ?)", zip(keys, (vector for (vector,) in found), strict=True))
                self._kept.commit()
            yield from (base64.b64encode(vector).decode() for (vector,) in found)

    def _make(self, texts: Sequence[str], kind: str) -> list[bytes]:
        from local.embedder.model import InputType, Model

        self._model = self._model or Model()
        return [made.vector.astype("<f4").tobytes() for made in self._model.encode(texts, InputType(kind))]


class Indexed:
    """A corpus in the engine."""

    def __init__(self, corpus: Mapping[str, str], vectors: Vectors | None, folder: Path) -> None:
        self._shard = Shard.create(folder)
        self._vectors = vectors
        self._names = {uuid5(WORKSPACE, one): one for one in corpus}
        self._document_of: dict[UUID, UUID] = {}
        cut = [(document, passage) for document, one in self._names.items() for passage in _cut(document, one, corpus[one])]
        texts = [embedded_text(passage.chunk.heading_path, passage.chunk.text) for _, passage in cut]
        dense = vectors.of(texts, "passage") if vectors is not None else itertools.repeat(None)
        for some in itertools.batched(zip(cut, dense, strict=False), 128):
            points = []
            for (document, passage), vector in some:
                self._document_of[passage.point] = document
                payload = {"workspace": str(WORKSPACE), "document": str(document), "ancestors": [], "tags": [], "exchange": False}
                points.append(Point(id=passage.point, sparse=passage.words, dense=vector, payload=payload))
            self._shard.upsert(points)

    def __len__(self) -> int:
        return len(self._document_of)

    def rank(self, query: str, candidates: Iterable[str] | None) -> dict[str, list[str]]:
        """Passages by each way of ranking, best first."""
        documents = [uuid5(WORKSPACE, one) for one in candidates] if candidates is not None else None
        dense = next(self._vectors.of([query], "query")) if self._vectors is not None else None
        condition = Filter(workspaces=[WORKSPACE], documents=documents)
        legs = self._shard.search(Search(filter=condition, sparse=query_vector(query), dense=dense, limit=HITS_PER_LEG))
        all_words = len(legs.sparse) < HITS_PER_LEG
        share = words_share(query)
        ways = {"words": fuse(legs.sparse, [], share, all_words=all_words)}
        if dense is not None:
            ways["vectors"] = fuse([], legs.dense, share, all_words=True)
            ways["hybrid"] = fuse(legs.sparse, legs.dense, share, all_words=all_words)
        return {way: list(dict.fromkeys(self._names[self._document_of[one]] for one, _ in ranked)) for way, ranked in ways.items()}


def _cut(document: UUID, name: str, text: str) -> list:  # type: ignore[type-arg]
    note = Note(path=f"{name}.md", title="", tags=[], content_hash="", size=0, modified_at=datetime.now(UTC), content=text)
    return cut_note(WORKSPACE, document, note).passages


def measured(one: TestSet, vectors: Vectors | None, scores: Callable[..., Row]) -> dict[str, Row]:
    """The three figures of each way."""
    with tempfile.TemporaryDirectory() as folder:
        indexed = Indexed(one.corpus, vectors, Path(folder) / "shard")
        print(f"  {len(one.queries)} queries, {len(one.corpus)} passages, {len(indexed)} chunks")
        rankings: dict[str, dict[str, list[str]]] = {}
        for query, text in one.queries.items():
            for way, ranked in indexed.rank(text, one.candidates[query] if one.candidates else None).items():
                rankings.setdefault(way, {})[query] = ranked
    return {way: scores(ranking, one.relevant) for way, ranking in rankings.items()}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--vaults", type=Path)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--words-only", action="store_true")
    options = parser.parse_args()
    sets = loaded(options.directory)
    vectors = None if options.words_only else Vectors(options.cache)
    tasks = {name: named(sets, name) for name in options.set or SETS}
    if options.vaults is not None:
        tasks |= {f"headings of {path.name}": headings(path) for path in sorted(options.vaults.iterdir()) if path.is_dir()}
    for name, one in tasks.items():
        print(name)
        for way, row in (measured(one, vectors, sets.scores) | BASELINES.get(name, {})).items():
            print("    {:<18} nDCG@10 {:.4f}   Recall@10 {:.4f}   MRR@10 {:.4f}".format(way, *row), flush=True)


if __name__ == "__main__":
    main()
