"""Looking up peers: absolute names, A records only, every answer typed."""

from __future__ import annotations

from dns import resolver
from dns.exception import DNSException

from agent.machine.api import Problem


class Resolver:
    """Asks the servers that `configuration` names; without one, each look-up says so.

    A look-up takes at most `seconds` over all servers; who asked repeats it.
    """

    def __init__(self, configuration: str = "/etc/resolv.conf", seconds: float = 5.0) -> None:
        self._configuration = configuration
        self._seconds = seconds
        try:
            self._resolver = resolver.Resolver(configuration)
        except resolver.NoResolverConfiguration:
            self._resolver = resolver.Resolver(configure=False)

    def lookup(self, name: str) -> str | Problem:
        """The first IPv4 address of `name`, taken as absolute."""
        if not self._resolver.nameservers:
            return Problem("name", f"{self._configuration} names no DNS server")
        try:
            # Absolute, because with Kubernetes' ndots:5 each search domain would be asked first.
            answer = self._resolver.resolve(f"{name}.", "A", search=False, lifetime=self._seconds)
        except resolver.NXDOMAIN:
            return Problem("name", "DNS does not know its name yet")
        except resolver.NoAnswer:
            return Problem("name", "DNS has no address for its name yet")
        except resolver.LifetimeTimeout:
            servers = ", ".join(str(server) for server in self._resolver.nameservers)
            return Problem("name", f"DNS ({servers}) did not answer within {self._seconds:g} s")
        except DNSException as error:
            return Problem("name", f"DNS failed: {error}")
        return str(answer[0])
