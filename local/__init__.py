"""The whole of Marginalia on one machine: embedded stores, bundled models, one supervisor (`python -m local`)."""
