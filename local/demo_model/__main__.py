"""`python -m local.demo_model --port N`: serves the demo model, on 127.0.0.1 where not told otherwise."""

import argparse

import uvicorn

from local.demo_model.server import app


def main() -> None:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvicorn.run(app(), host=options.host, port=options.port, log_level="warning", access_log=False, timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
