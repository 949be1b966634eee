"""The modes and settings of a session, as clients show them."""

from typing import Any

MODES: list[dict[str, str]] = [
    {"id": "plan", "name": "Plan", "description": "Reads and thinks; changes nothing"},
    {"id": "ask", "name": "Ask", "description": "Asks before each change and each command"},
    {"id": "auto", "name": "Auto", "description": "Edits and runs sandboxed commands without asking"},
    {"id": "full", "name": "Full", "description": "Never asks"},
]

MODE_IDS = tuple(mode["id"] for mode in MODES)


def mode_state(mode: str) -> dict[str, Any]:
    """`modes` of the answer to `session/new`, `load` and `resume`."""
    return {"currentModeId": mode, "availableModes": MODES}


def config_options(mode: str, model: str, models: list[str]) -> list[dict[str, Any]]:
    """`configOptions`: the whole list with its current values, as the protocol wants it each time."""
    known = models if model in models else [model, *models]
    return [
        {
            "id": "mode",
            "name": "Mode",
            "category": "mode",
            "type": "select",
            "currentValue": mode,
            "options": [
                {"value": item["id"], "name": item["name"], "description": item["description"]}
                for item in MODES
            ],
        },
        {
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": model,
            "options": [{"value": name, "name": name} for name in known],
        },
    ]
