"""Optimises a copy of a shard that nobody else has open: `python -m local.index_optimizer <folder>`. Ends with 0 when it is on disk."""

import sys
from pathlib import Path

from local.index_shard import Shard


def main(path: Path) -> None:
    """Builds the vector index of the shard in that folder."""
    shard = Shard.load(path)
    shard.optimize()
    shard.flush()
    shard.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
