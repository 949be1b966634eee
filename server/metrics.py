"""What the server counts, for Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.events import Event

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Metrics:
    """One registry per server. `tool_errors{class="unknown"}` counts defects of ours."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"etude_{name}", about, labels, registry=self.registry)

        self.tool_errors = counter(
            "tool_errors", "Tool calls that failed, by class", "class", "tool", "model"
        )
        self.tool_calls = counter("tool_calls", "Tool calls that got a result", "tool")
        self.turns = counter("turns", "Turns that ended, by reason", "reason")
        self.errors = counter("errors", "Errors in the log", "where", "error")
        self.deltas = counter("deltas", "Live pieces of text sent out")
        self.events = counter("events", "Events stored")
        self.refused = counter("refused", "Connections refused before they were accepted", "status")
        self.commit = Histogram(
            "etude_commit_seconds",
            "From the making of an event to its being durable",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.connections = Gauge("etude_connections", "Clients connected", registry=self.registry)
        self.sessions = Gauge("etude_sessions", "Sessions in memory", registry=self.registry)
        self._model: dict[str, str] = {}

    def event(self, event: Event) -> None:
        """Count one committed event."""
        self.events.inc()
        self.commit.observe(max(0.0, time.time() - event.ts / 1e6))
        data = event.data
        if event.type == "turn.started":
            self._model[event.session_id] = data["model"]
        elif event.type == "tool.result":
            self.tool_calls.labels(data["name"]).inc()
            if data.get("error"):
                model = self._model.get(event.session_id, "")
                self.tool_errors.labels(data["error"], data["name"], model).inc()
        elif event.type == "turn.ended":
            self.turns.labels(data["reason"]).inc()
            self._model.pop(event.session_id, None)
        elif event.type == "error":
            self.errors.labels(data["where"], data["error"]).inc()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
