"""Self-summaries: a conversation that outgrows the model's window goes on from what matters of it."""
