"""`python -m services.contexts`: configured by the environment alone."""

from services.contexts.app import NAME, serve
from shared.service import run
from shared.settings import ServiceSettings

settings = ServiceSettings()
run(NAME, settings, lambda stop: serve(settings, stop))
