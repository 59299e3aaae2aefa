"""The bundled embedder behind OpenAI's `/v1/embeddings`: multilingual-e5-small for every text, all-MiniLM-L6-v2 beside it for English."""
