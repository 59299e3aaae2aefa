"""`python -m services.agent`: configured by the environment alone."""

import sys

from services.agent.app import NAME, serve
from services.agent.providers import ProvidersFileError
from services.agent.settings import AgentSettings
from shared.secret_files import SecretFileError
from shared.service import run
from shared.settings import read

settings = read(AgentSettings)
try:
    run(NAME, settings, lambda stop: serve(settings, stop))
except (ProvidersFileError, SecretFileError) as error:
    sys.exit(str(error))
