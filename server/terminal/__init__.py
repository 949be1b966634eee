"""The terminal client: finds the one server or starts a private one, speaks ACP, draws."""
