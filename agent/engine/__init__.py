"""Engines that own their tokens: exact ids, log-probs and versions of every generation."""
