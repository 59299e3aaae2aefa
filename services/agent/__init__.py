"""The agent: conversations and turns; the loop over rounds; the provider client.

A turn is a log of events with one writer. `turn.py` decides what happens, `turn_log.py` writes it down and publishes it, `fold.py` says
what a log amounts to, `turn_store.py` keeps it; `conversations.py` is what clients read of it.
"""
