"""One chat client for every OpenAI-compatible endpoint: cache, retries, concurrency, structured replies, usage."""
