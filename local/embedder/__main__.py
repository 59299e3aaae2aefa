"""`python -m local.embedder --port N [--cache DIR]`: serves the embedder on 127.0.0.1."""

import argparse
import logging
from pathlib import Path

import uvicorn

from local.embedder.server import app


def main() -> None:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cache", type=Path, help="where an engine built for this machine is kept")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    uvicorn.run(app(options.cache), host="127.0.0.1", port=options.port, log_level="warning", access_log=False, timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
