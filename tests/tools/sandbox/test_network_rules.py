"""Rules about hosts: what each allows, what is no rule, which list is the narrower one."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.sandbox.network import AllowList, Rule, public


@pytest.mark.parametrize(
    ("rules", "host", "port", "allowed"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "PyPI.org.", 80, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org", "pypi.org.evil.com", 443, False),
        ("pypi.org", "evilpypi.org", 443, False),
        ("pypi.org", "files.pypi.org", 443, False),
        ("pypi.org:8443", "pypi.org", 8443, True),
        ("pypi.org:8443", "pypi.org", 443, False),
        ("*.npmjs.org", "registry.npmjs.org", 443, True),
        ("*.npmjs.org", "a.b.npmjs.org", 443, True),
        ("*.npmjs.org", "npmjs.org", 443, False),
        ("*.npmjs.org", "evilnpmjs.org", 443, False),
        ("*", "anything.example", 443, True),
        ("*", "93.184.216.34", 443, False),
        ("93.184.216.34", "93.184.216.34", 443, True),
        ("93.184.216.0/24", "93.184.216.34", 443, True),
        ("10.0.0.5:8080", "10.0.0.5", 8080, True),
        ("10.0.0.5:8080", "::ffff:10.0.0.5", 8080, True),
        ("[2606:4700::1111]:443", "2606:4700::1111", 443, True),
        ("2606:4700::/32", "2606:4700::1111", 443, True),
        (
            "*",
            "2130706433",
            443,
            True,
        ),  # no address here: it goes to the resolver, and what it finds is checked
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("*", "a b", 443, False),
        ("*", "", 443, False),
        ("*", "x" * 300, 443, False),
        ("pypi.org", "pypi.org\r\nHost: evil", 443, False),
    ],
)
def test_a_rule_allows_its_host_and_port_only(rules: str, host: str, port: int, allowed: bool) -> None:
    assert (AllowList.parse([rules]).refusal(host, port) is None) is allowed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://pypi.org",
        "pypi.org/simple",
        "a b",
        "*.",
        "*.*.x",
        "x:0",
        "x:99999",
        "127.1",
        "0x7f.1",
        "-a.b",
    ],
)
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a host|a port is"):
        Rule.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1",
        "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "198.18.0.1", "240.0.0.1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(text: str) -> None:
    assert not public(ipaddress.ip_address(text))


NAMES = st.sampled_from(["a.x", "b.a.x", "x", "y", "a.y"])
TEXTS = st.builds(
    lambda star, name, port: f"{star}{name}{port}",
    st.sampled_from(["", "*."]),
    NAMES,
    st.sampled_from(["", ":443", ":80", ":22"]),
) | st.sampled_from(["*", "*:443", "10.0.0.0/8", "10.1.0.0/16:443", "10.1.2.3"])


@settings(database=None)
@given(
    st.lists(TEXTS, max_size=4),
    st.lists(TEXTS, max_size=4),
    NAMES | st.just("10.1.2.3"),
    st.sampled_from([22, 80, 443]),
)
def test_a_narrower_list_never_allows_more(wide: list[str], narrow: list[str], host: str, port: int) -> None:
    first, second = AllowList.parse(wide), AllowList.parse(narrow)
    if first.covers(second) and second.refusal(host, port) is None:
        assert first.refusal(host, port) is None
    assert first.covers(first)
