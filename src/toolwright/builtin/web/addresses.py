"""Which addresses a tool may reach. Owns the kinds of address and the owner's exceptions; does not own resolution.

The tables are our own: the addresses that `ipaddress` calls global differ between Python versions.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolwright.errors import ToolwrightError
from toolwright.tools.outcome import ToolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The first that fits decides.
_V4 = [
    (ipaddress.IPv4Network(network), kind)
    for network, kind in (
        # Where clouds answer from inside the machine, with the keys to it.
        ("100.100.100.200/32", "link-local"),
        ("168.63.129.16/32", "link-local"),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
_V6 = [
    (ipaddress.IPv6Network(network), kind)
    for network, kind in (
        ("fd00:ec2::254/128", "link-local"),
        ("fd20:ce::254/128", "link-local"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4 in IPv6"),
        ("::/96", "IPv4 in IPv6"),
        ("64:ff9b::/96", "IPv4 in IPv6"),
        ("64:ff9b:1::/48", "IPv4 in IPv6"),
        ("2001::/32", "IPv4 in IPv6"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "IPv4 in IPv6"),
        ("3ffe::/16", "reserved"),
        ("3fff::/20", "reserved"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
# The networks that an owner means by an intranet. All others, above all link-local with its metadata services, must be
# named or are refused.
_INTRANET = frozenset({"private", "loopback", "carrier-grade NAT"})


def kind_of(address: Address) -> str | None:
    """The kind of an address, or None for a public one."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((kind for network, kind in _V4 if address in network), None)
    if address.scope_id is not None:
        return "link-local"
    kind = next((kind for network, kind in _V6 if address in network), None)
    return kind or (None if address in _GLOBAL_V6 else "reserved")


class Reach(Struct, frozen=True):
    """The addresses that the owner allows beyond the public internet: hosts by name, networks, or all private ones."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    private: bool = False

    @classmethod
    def read(cls, allowed: Iterable[str], private: bool) -> Reach:
        """Sort names from addresses and networks.

        Raises:
            ToolwrightError: an entry is neither.
        """
        hosts: set[str] = set()
        networks: list[Network] = []
        if isinstance(allowed, str):
            raise ToolwrightError(f"allow_hosts is {allowed!r:.200}; use a list of hosts")
        for entry in allowed:
            if not isinstance(entry, str) or not entry or entry != entry.strip():
                raise ToolwrightError(
                    f"allow_hosts has {entry!r:.200}; use the name of a host, an address or a network"
                )
            try:
                networks.append(ipaddress.ip_network(entry.strip("[]")))
            except ValueError:
                if not entry.isascii() or any(mark in entry for mark in "/:*@"):
                    raise ToolwrightError(
                        f"allow_hosts has {entry!r:.200}; write a host in ASCII without scheme, port or path, as in "
                        "'wiki.corp.example', or a network, as in '10.1.0.0/16'"
                    ) from None
                hosts.add(entry.lower())
        return cls(frozenset(hosts), tuple(networks), private)

    def check(self, host: str, found: Sequence[str]) -> list[Address]:
        """The addresses that were found for a host, all of them allowed.

        One address that is not allowed refuses all: a name with a public and a private address is how a rebinding
        attack looks.

        Raises:
            ToolError: there is none, or one may not be reached. The model is told its kind, the record the address.
        """
        addresses = [ipaddress.ip_address(text) for text in dict.fromkeys(found)]
        if not addresses:
            raise ToolError(
                f"Host {host!r} has no address; check its spelling.", category="external", code="name_not_resolved"
            )
        for address in addresses:
            kind = kind_of(address)
            if kind is None or self._allows(host, address, kind):
                continue
            raise ToolError(
                f"Host {host!r} is not on the public internet (its address is {kind}), and is not fetched; "
                "use a public address, or let the owner of this program allow the host.",
                category="permission_denied",
                code="address_refused",
                detail=f"{host!r} stands for {address}",
            )
        return addresses

    def _allows(self, host: str, address: Address, kind: str) -> bool:
        if self.private and kind in _INTRANET:
            return True
        return host in self.hosts or any(address in network for network in self.networks)
