"""vLLM behind the engine's protocol: a server of its own, in an environment of its own, over HTTP."""
