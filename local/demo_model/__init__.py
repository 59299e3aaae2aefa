"""The bundled demo model: an OpenAI-compatible server that quotes notes and says so. What a new user sees without a key."""
