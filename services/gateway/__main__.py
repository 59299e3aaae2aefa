"""`python -m services.gateway`: configured by the environment alone."""

from services.gateway.app import NAME, serve
from services.gateway.settings import GatewaySettings
from shared.service import run

settings = GatewaySettings()
run(NAME, settings, lambda stop: serve(settings, stop))
