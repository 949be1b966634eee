"""Between chat messages and an engine's token ids: rendering that only appends, and reading back."""
