"""`python -m services.retrieval`: configured by the environment alone."""

from services.retrieval.app import NAME, serve
from services.retrieval.settings import RetrievalSettings
from shared.service import run
from shared.settings import read

settings = read(RetrievalSettings)
run(NAME, settings, lambda stop: serve(settings, stop))
