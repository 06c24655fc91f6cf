"""The only folder that imports Dagster: bodies are a call and its metadata."""
