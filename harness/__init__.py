"""The bench: data, language models, replay, records. It knows no memory system and no backbone by name."""
