"""Ranking places of a workspace for a question: terms, their weights, and the passage that answers best."""
