"""Looking up peers: absolute names, A records only, every answer typed."""

from __future__ import annotations

from agent.machine.api import Problem

SECONDS = 5.0


class Resolver:
    """Asks the servers of /etc/resolv.conf; without one, each look-up says so."""

    def __init__(self) -> None:
        import dns.resolver

        self._dns = dns.resolver
        try:
            self._resolver = dns.resolver.Resolver()
        except dns.resolver.NoResolverConfiguration:
            self._resolver = dns.resolver.Resolver(configure=False)

    def lookup(self, name: str) -> str | Problem:
        """The first IPv4 address of `name`, taken as absolute."""
        dns = self._dns
        if not self._resolver.nameservers:
            return Problem("name", "/etc/resolv.conf names no DNS server")
        try:
            answer = self._resolver.resolve(f"{name}.", "A", search=False, lifetime=SECONDS)
        except dns.NXDOMAIN:
            return Problem("name", "DNS does not know its name yet")
        except dns.NoAnswer:
            return Problem("name", "DNS has no address for its name yet")
        except dns.LifetimeTimeout:
            servers = ", ".join(str(server) for server in self._resolver.nameservers)
            return Problem("name", f"DNS ({servers}) did not answer within {SECONDS:.0f} s")
        except dns.NoNameservers as error:
            return Problem("name", f"DNS failed: {error}")
        return str(answer[0])
