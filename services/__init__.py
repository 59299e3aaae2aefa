"""The five services; none imports another, all share `shared`.

- gateway: HTTP and SSE; accounts and sessions.
- agent: conversations and turns; the loop over rounds; the provider client.
- retrieval: chunks, embeddings, search, stored runs.
- notes: the vaults, their index and their changes.
- contexts: what of the notes goes into a model request.
"""
