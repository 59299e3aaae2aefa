"""Finds passages: cuts notes into chunks, keeps them searchable by words and by vectors, and stores what searches saw."""
