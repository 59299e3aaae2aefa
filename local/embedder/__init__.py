"""The bundled embedder: multilingual-e5-small behind OpenAI's `/v1/embeddings`. The only one found inside a package that knows Chinese."""
