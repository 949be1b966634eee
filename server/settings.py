"""Every setting, its type, its default and its meaning. `server.configuration` finds the values.

`server/configuration.py` merges flags, environment and files; this page is only the shape.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent.events import Mode
from agent.judge.rules import read
from agent.models.settings import ModelSettings
from tools.mcp import McpSpec

Consent = Literal["none", "metrics", "eval", "train", "publish"]
"""What may be done with a workspace's sessions: each level includes those before it."""


class Table(BaseModel):
    """One table of the configuration. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(Table):
    host: str = Field(
        default="127.0.0.1", description="address to listen on; anything but loopback is reachable by others"
    )
    port: int = Field(default=4747, ge=0, le=65535, description="port to listen on; 0 = any free one")
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="web origins besides its own that may connect"
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="names besides loopback by which it may be addressed"
    )


class StoreSettings(Table):
    url: str = Field(default="", description="database: sqlite:///PATH or postgresql://…")
    snapshots_gb: float = Field(
        default=20,
        gt=0,
        description="GiB of snapshots beyond which those of long unused sessions are deleted",
    )
    blobs: Literal["database"] = Field(default="database", description="where large contents lie")


class AgentSettings(Table):
    model: str | None = Field(default=None, description="model to use; none = the first that is found")
    mode: Mode = Field(
        default="ask",
        description="plan: read only; ask: approve each change; auto: edit, run confined; full: no questions",
    )
    max_steps: int = Field(default=200, ge=1, le=100_000, description="model calls in one turn")
    summarize_at: float = Field(
        default=0.8, gt=0, le=0.95, description="share of the window that triggers a self-summary"
    )
    max_summaries: int = Field(default=20, ge=0, le=1000, description="self-summaries in one turn")


class SandboxSettings(Table):
    tier: Literal["auto", "bubblewrap", "landlock", "none"] = Field(
        default="auto", description="confinement of commands"
    )
    network: bool | tuple[str, ...] = Field(
        default=False, description="whether commands reach the network, or the hosts that they may reach"
    )
    read: tuple[Path, ...] = Field(default=(), description="more folders that commands may read")
    memory_mb: int = Field(default=4096, ge=64, description="memory of a workspace's commands, MiB")
    pids: int = Field(default=512, ge=16, description="processes of a workspace's commands")

    @field_validator("network")
    @classmethod
    def _hosts(cls, value: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
        if isinstance(value, bool):
            return value
        from tools.sandbox.network import AllowList  # with the sandbox, which few commands need

        AllowList.parse(value)
        return value or False


class McpSettings(Table):
    """One MCP server: a program (`command`, `args`) or an address (`url`)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    """Variables of the server's own environment that its program gets: the place for secrets."""
    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    token_env: str | None = None
    """The variable that holds a bearer token for `url`."""

    def spec(self, name: str, environ: Mapping[str, str]) -> McpSpec:
        """Raises `McpSpecError` where it is neither a program nor an address."""
        given = {variable: environ[variable] for variable in self.env_from if variable in environ}
        headers = dict(self.headers)
        if self.token_env and environ.get(self.token_env):
            headers["Authorization"] = f"Bearer {environ[self.token_env]}"
        return McpSpec(name, self.command, self.args, {**given, **self.env}, self.url, headers)


class ApprovalSettings(Table):
    allow: tuple[str, ...] = Field(
        default=(), description="commands, by the words they begin with, that run without asking"
    )
    deny: tuple[str, ...] = Field(
        default=(), description="commands, by the words they begin with, that never run"
    )

    @field_validator("allow", "deny")
    @classmethod
    def _are_commands(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            read(rule)
        return rules


class PrivacySettings(Table):
    consent: Consent = Field(
        default="metrics", description="what may be done with sessions of a new workspace"
    )
    retention_days: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="days without use after which sessions are deleted"
    )


class JudgeSettings(Table):
    model: str | None = Field(default=None, description="model that judges; none = rules only")


class Settings(BaseModel):
    """All tables, merged, with where each value came from and what was ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    agent: AgentSettings = AgentSettings()
    sandbox: SandboxSettings = SandboxSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    mcp: dict[str, McpSettings] = Field(default_factory=dict)
    privacy: PrivacySettings = PrivacySettings()
    judge: JudgeSettings = JudgeSettings()

    warnings: list[str] = Field(default_factory=list, exclude=True)
    """What a workspace asked for and did not get."""
    proposed: dict[str, McpSettings] = Field(default_factory=dict, exclude=True)
    """MCP servers that the workspace's own file names: they start when a person allows it."""
    sources: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Dotted key → where its value came from; a key that is missing here has its default."""
    flags: dict[str, Any] = Field(default_factory=dict, exclude=True)
    environ: dict[str, str] = Field(default_factory=dict, exclude=True, repr=False)

    @field_validator("mcp")
    @classmethod
    def _reachable(cls, value: dict[str, McpSettings]) -> dict[str, McpSettings]:
        for name, settings in value.items():
            settings.spec(name, {})  # its error is a ValueError with what is expected
        return value

    @classmethod
    def load(cls, flags: Mapping[str, Any], environ: Mapping[str, str], workspace: Path | None) -> "Settings":
        """Merge flags (dotted keys; None = not given), environment, workspace file, user file, defaults.

        Raises `server.configuration.SettingsError` naming the source and the key of the first mistake.
        """
        from server.configuration import load

        return load(flags, environ, workspace)

    def for_workspace(self, workspace: Path) -> "Settings":
        """The same settings as narrowed by the `etude.toml` of one workspace."""
        return self.load(self.flags, self.environ, workspace)
