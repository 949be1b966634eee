"""Which hosts commands may reach when the network is a list: its rules, and what they say of one destination.

A rule is `host`, `*.host` (every name below it, not itself), `*` (every name), an address or a network
(`10.1.0.0/16`), each with or without `:port`. Without a port it means 80 and 443. A name that is allowed is
still refused where it resolves to an address that is not public, unless a rule lists that address: else
whoever owns a name could point it at the machine itself or its neighbours.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

WEB: Final = frozenset({80, 443})
"""The ports of a rule that names none."""

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_RULE: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d{1,5}))?")
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` is lower-case ASCII, `*` first where it stands for all names below; or `network` is set."""

    text: str
    name: str
    network: Network | None
    ports: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Raises ValueError: what is wrong, and what a rule looks like."""
        wanted = text.strip().lower()
        expected = (
            f"{text!r} is not a host; write a name (pypi.org), every name below one (*.npmjs.org) or an "
            "address (10.0.0.5, 10.1.0.0/16), each with a port behind it or not (pypi.org:8443)"
        )
        if "://" in wanted:
            raise ValueError(f"{expected}, without {wanted.partition('://')[0]}://")
        network = _network(wanted)
        if network is not None:
            return cls(text, "", network, WEB)
        found = _RULE.fullmatch(wanted)
        if found is None:
            raise ValueError(expected)
        ports = WEB
        if found["port"] is not None:
            if not 0 < int(found["port"]) < 65536:
                raise ValueError(f"{text!r}: a port is 1 to 65535")
            ports = frozenset({int(found["port"])})
        host = found["six"] or found["host"]
        network = _network(host)
        if network is not None:
            return cls(text, "", network, ports)
        name = host if host == "*" else ascii_name(host.removeprefix("*."))
        if found["six"] or name is None or "/" in host or _looks_numeric(name):
            raise ValueError(expected)
        return cls(text, f"*.{name}" if host.startswith("*.") else name, None, ports)

    def names(self, host: str) -> bool:
        """Whether the rule is about this name (lower-case ASCII)."""
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return bool(self.name) and self.name in ("*", host)

    def covers(self, other: "Rule") -> bool:
        """Whether everything that `other` allows is allowed by this one."""
        if not other.ports <= self.ports:
            return False
        if self.network is not None or other.network is not None:
            return (
                self.network is not None
                and other.network is not None
                and self.network.version == other.network.version
                and other.network.subnet_of(self.network)  # pyright: ignore[reportArgumentType]
            )
        return self.name == "*" or self.name == other.name or self.names(other.name.removeprefix("*"))


@dataclass(frozen=True, slots=True)
class AllowList:
    """The rules of one policy."""

    rules: tuple[Rule, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "AllowList":
        """Raises ValueError naming the rule that is none."""
        return cls(tuple(Rule.parse(text) for text in texts))

    def covers(self, other: "AllowList") -> bool:
        """Whether `other` allows nothing that this list does not, as far as single rules show."""
        return all(any(mine.covers(rule) for mine in self.rules) for rule in other.rules)

    def refusal(self, host: str, port: int) -> str | None:
        """Why this destination is refused before its name is even resolved; None if it is not."""
        literal = address(host)
        if literal is not None:
            return None if self.lists(literal, port) else self._not_listed(str(literal), port)
        name = ascii_name(host)
        if name is None:
            return f"{host[:100]!r} is not a host name"
        if any(port in rule.ports and rule.names(name) for rule in self.rules):
            return None
        return self._not_listed(name, port)

    def lists(self, found: Address, port: int) -> bool:
        """Whether a rule names this very address."""
        return any(
            rule.network is not None and port in rule.ports and found in rule.network for rule in self.rules
        )

    def reachable(self, found: Address, port: int) -> bool:
        """Whether an allowed name may lead to this address."""
        return public(found) or self.lists(found, port)

    def _not_listed(self, host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host else host
        others = sorted({number for rule in self.rules if rule.names(host) for number in rule.ports})
        if others and address(host) is None:
            return f"sandbox.network lists {host} for port {', '.join(map(str, others))}, not {port}"
        return f"{shown}:{port} is not in sandbox.network"


def address(text: str) -> Address | None:
    """The address that `text` writes plainly; IPv4 inside IPv6 counts as what it is."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def public(found: Address) -> bool:
    """Whether it is somebody on the Internet, and not this machine, its network or a translator to them."""
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return False
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if inner is None and found in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None and not public(inner):
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def ascii_name(text: str) -> str | None:
    """A host name as it is sent to name servers, lower-case, without a final dot; None if it is none."""
    name = text.strip().lower().removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    labels = name.split(".")
    return name if len(name) <= 253 and all(map(_LABEL.fullmatch, labels)) else None


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _looks_numeric(name: str) -> bool:
    """Old ways to write an address (127.1, 0x7f000001) are neither names nor addresses here."""
    last = name.rpartition(".")[2]
    return last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last) is not None
