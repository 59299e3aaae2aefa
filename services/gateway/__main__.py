"""`python -m services.gateway`: configured by the environment alone."""

from services.gateway.app import NAME, serve
from services.gateway.settings import GatewaySettings
from shared.service import run
from shared.settings import read

settings = read(GatewaySettings)
run(NAME, settings, lambda stop: serve(settings, stop))
