"""Where settings come from: flags > environment > workspace file > user file > defaults.

A workspace's `etude.toml` is written by whoever wrote the repository, so it may only narrow what the
user allows; whatever else it says is ignored, with a warning.
"""

import difflib
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from agent.models.settings import ModelSettings
from server import places
from server.failure import Usage
from server.settings import McpSettings, Settings

MAX_FILE: Final = 256 * 1024
TABLES: Final = ("server", "store", "models", "agent", "sandbox", "approvals", "mcp", "privacy", "judge")
BY_NAME: Final = {"models": ModelSettings, "mcp": McpSettings}
"""Tables of tables, with the shape of each."""
FREE: Final = ("models.NAME.extra.", "mcp.NAME.env.", "mcp.NAME.headers.")
"""Below these any key may stand."""
NAMED: Final = {"ETUDE_DB": "store.url", "ETUDE_MODEL": "agent.model"}
"""Variables with a name of their own, beside `ETUDE_A__B` for the key `a.b`."""


class SettingsError(Usage):
    """A setting that cannot be understood. The message names the source, the key and what is expected."""


def _lower(value: Any, current: Any) -> bool:
    return value <= current


def _ranked(*order: str) -> Callable[[Any, Any], bool]:
    return lambda value, current: order.index(value) <= order.index(current)


def _fewer_hosts(value: bool | tuple[str, ...], current: bool | tuple[str, ...]) -> bool:
    """No network is less than a list of hosts, and that is less than all of it."""
    if isinstance(value, bool) or isinstance(current, bool):
        return current is True or value is False
    from tools.sandbox.network import AllowList  # with the sandbox, which few commands need

    return AllowList.parse(current).covers(AllowList.parse(value))


def _stricter(value: str, current: str) -> bool:
    """Of the tiers; `auto` may end below `landlock`, so that neither of these two is the stricter one."""
    return value in (current, "bubblewrap") or current == "none"


NARROWS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "agent.mode": _ranked("plan", "ask", "auto", "full"),
    "agent.max_steps": _lower,
    "agent.summarize_at": _lower,
    "agent.max_summaries": _lower,
    "sandbox.tier": _stricter,
    "sandbox.network": _fewer_hosts,
    "sandbox.read": lambda value, current: set(value) <= set(current),
    "sandbox.memory_mb": _lower,
    "sandbox.pids": _lower,
    "approvals.allow": lambda value, current: set(value) <= set(current),
    "approvals.deny": lambda value, current: set(value) >= set(current),
}
"""What a workspace file may set at all, and when its value is no wider than the user's."""


def load(flags: Mapping[str, Any], environ: Mapping[str, str], workspace: Path | None) -> Settings:
    """See `Settings.load`."""
    values: dict[str, Any] = {"store.url": places.database_url()}
    sources: dict[str, str] = {}
    warnings: list[str] = []
    user_file = places.config_file()
    _add(values, sources, _read(user_file), str(user_file), user_file.parent)
    proposed: dict[str, Any] = {}
    if workspace is not None and (workspace / "etude.toml") != user_file:
        _narrow(values, sources, warnings, proposed, workspace / "etude.toml")
    for variable, key, value in _from_environment(environ):
        _add(values, sources, {key: value}, f"environment {variable}", places.caller())
    given = {key: value for key, value in flags.items() if value is not None}
    _add(values, sources, given, "command line", places.caller())
    settings = _validate(values, sources)
    return settings.model_copy(
        update={
            "proposed": {
                name: server
                for name, server in _proposed(proposed, workspace).items()
                if name not in settings.mcp
            },
            "warnings": warnings,
            "sources": sources,
            "flags": given,
            "environ": dict(environ),
        }
    )


def known_keys() -> list[str]:
    """Every dotted key; `NAME` stands for a model's name."""
    return sorted(_keys(Settings, ""))


def _keys(shape: type, prefix: str) -> Iterator[str]:
    for name, annotation in _fields(shape).items():
        if not prefix and name not in TABLES:
            continue
        if prefix + name in BY_NAME:
            yield from _keys(BY_NAME[name], f"{name}.NAME.")
            continue
        nested = next((kind for kind in _types(annotation) if _fields(kind)), None)
        if nested is None:
            yield prefix + name
        else:
            yield from _keys(nested, f"{prefix}{name}.")


def _fields(shape: Any) -> dict[str, Any]:
    if is_dataclass(shape):
        return {field.name: field.type for field in fields(shape)}
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        return {name: field.annotation for name, field in shape.model_fields.items()}
    return {}


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _types(inner)


def _is_list(key: str) -> bool:
    table, _, name = key.partition(".")
    if table not in TABLES or table in BY_NAME:
        return False
    annotation = _fields(Settings.model_fields[table].annotation).get(name)
    return any(get_origin(kind) is tuple for kind in (annotation, *get_args(annotation)))


def _check(key: str, source: str) -> None:
    """Refuse a key that does not exist, naming the nearest one that does."""
    parts = key.split(".")
    named = parts[0] in BY_NAME and len(parts) > 1
    general = ".".join([parts[0], "NAME", *parts[2:]]) if named else key
    known = known_keys()
    if general in known or general.startswith(FREE):
        return
    near = difflib.get_close_matches(general, known, n=1, cutoff=0.5)
    name = next(iter(parts[1:2]), "NAME") if parts[0] in BY_NAME else "NAME"
    hint = (
        f"did you mean {near[0].replace('NAME', name)!r}?" if near else f"the tables are {', '.join(TABLES)}"
    )
    raise SettingsError(f"{source}: unknown setting {key!r}; {hint}")


def _add(
    values: dict[str, Any], sources: dict[str, str], layer: Mapping[str, Any], source: str, base: Path
) -> None:
    for key, value in layer.items():
        _check(key, source)
        values[key] = _anchored(key, value, base)
        sources[key] = source


def _anchored(key: str, value: Any, base: Path) -> Any:
    """Relative paths mean: relative to the file that says so, or to where the command was typed."""
    if key == "sandbox.read" and isinstance(value, list | tuple):
        return [os.path.normpath(base / os.path.expanduser(str(path))) for path in value]
    if key == "store.url" and isinstance(value, str):
        scheme, found, path = value.partition(":///")
        if found and scheme.startswith("sqlite"):
            return f"{scheme}:///{os.path.normpath(base / os.path.expanduser(path))}"
        if "://" not in value:
            return f"sqlite:///{os.path.normpath(base / os.path.expanduser(value))}"
    return value


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    for variable in sorted(environ):
        text = environ[variable]
        if not text:
            continue
        if variable in NAMED:
            yield variable, NAMED[variable], text
        elif variable.startswith("ETUDE_") and "__" in variable:
            key = variable.removeprefix("ETUDE_").lower().replace("__", ".")
            listed = _is_list(key) and text.lower() not in ("true", "false")
            yield variable, key, [part.strip() for part in text.split(",")] if listed else text


def _read(file: Path) -> dict[str, Any]:
    """The dotted keys of a TOML file; nothing when there is none."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise SettingsError(f"{file}: not a regular file; a configuration is expected to be one")
        if file.stat().st_size > MAX_FILE:
            raise SettingsError(f"{file}: larger than {MAX_FILE // 1024} KiB; that is no configuration")
        return dict(_flat(tomllib.loads(file.read_text(encoding="utf-8")), "", file))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 text (byte {error.start}); TOML is UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise SettingsError(f"{file}: nests too deeply; a configuration has tables and values") from error


def _flat(table: Mapping[str, Any], prefix: str, file: Path) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if "." in name or ":" in name:
            raise SettingsError(f"{file}: {prefix}{name}: a name may hold no '.' or ':'; choose another")
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.", file)
        else:
            yield f"{prefix}{name}", value


def _proposed(values: Mapping[str, Any], workspace: Path | None) -> dict[str, McpSettings]:
    """The MCP servers of a workspace's file. Secrets of the server's environment are not theirs to name."""
    source = str(workspace / "etude.toml") if workspace is not None else ""
    servers = _validate(values, dict.fromkeys(values, source)).mcp
    hidden = {"env_from": (), "token_env": None}
    return {name: server.model_copy(update=hidden) for name, server in servers.items()}


def _narrow(
    values: dict[str, Any],
    sources: dict[str, str],
    warnings: list[str],
    proposed: dict[str, Any],
    file: Path,
) -> None:
    """Take from a workspace's file what narrows the user's settings; its MCP servers are only proposed."""
    for key, value in _read(file).items():
        if key.startswith("mcp."):
            _check(key, str(file))
            proposed[key] = value
            continue
        if (
            key.partition(".")[0] in TABLES
            and key not in NARROWS
            and key.partition(".")[0] not in ("agent", "sandbox")
        ):
            warnings.append(
                f"{file}: {key} is ignored: a workspace may not set it (your own configuration may)"
            )
            continue
        _check(key, str(file))
        if key not in NARROWS:
            warnings.append(
                f"{file}: {key} is ignored: a workspace may not choose it (your own configuration may)"
            )
            continue
        if key == "approvals.deny" and isinstance(value, list):  # it adds to what is forbidden
            value = list(dict.fromkeys([*values.get(key, ()), *value]))
        attempt = {**values, key: _anchored(key, value, file.parent)}
        wanted = _value(_validate(attempt, {**sources, key: str(file)}), key)
        current = _value(_validate(values, sources), key)
        if NARROWS[key](wanted, current):
            values[key], sources[key] = attempt[key], str(file)
        else:
            warnings.append(
                f"{file}: {key} = {_shown(wanted)} is ignored: it allows more than your {_shown(current)} "
                f"({sources.get(key, 'default')}); a workspace may only narrow"
            )


def _value(settings: Settings, key: str) -> Any:
    table, _, name = key.partition(".")
    return getattr(getattr(settings, table), name)


def _shown(value: Any) -> str:
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, tuple) else str(value).lower()


def _validate(values: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        node = tree
        *tables, name = key.split(".")
        for table in tables:
            node = node.setdefault(table, {})
        node[name] = value
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        parts = [str(part) for part in first["loc"]]
        key = next(
            (".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in sources), ""
        )
        source = sources.get(key, "configuration")
        expected = first["msg"][0].lower() + first["msg"][1:]
        raise SettingsError(
            f"{source}: {key or '.'.join(parts)} = {values.get(key)!r}: {expected}"
        ) from error
