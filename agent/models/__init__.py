"""Model clients. Importing this imports neither the `openai` SDK nor torch."""

from agent.models.catalog import open_model

__all__ = ["open_model"]
