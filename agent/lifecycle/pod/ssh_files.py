"""Text of the files that sshd and ssh read: hardened, and the same on every pod.

Why each line stands there: docs/ssh.md. OpenSSH refuses a configuration for one word that it does not know: each
must be known since OLDEST_OPENSSH.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.decide.plan import Plan

OLDEST_OPENSSH = "8.2"
KEX_CHEAP = "curve25519-sha256,curve25519-sha256@libssh.org"
KEX_LEFT_OUT = "-ecdh-*,diffie-hellman-*"
"""What is left of a daemon's own list: curve25519, and the post-quantum methods, whose names come and go."""
CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com"
MACS = "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,umac-128-etm@openssh.com"

ADDRESSES = "addresses"
"""A file beside `ssh_config`."""
BEGIN_BLOCK = "# >>> a4-agent: written at each start, do not edit >>>"
END_BLOCK = "# <<< a4-agent <<<"


def sshd_config(*, port: int, addresses: Sequence[str], directory: str, session_env: Mapping[str, str]) -> str:
    """The daemon's configuration. `directory` holds `host_key` and `authorized_keys`, 0700 and root's.

    `session_env` is given to every session (PATH, library paths), but for values with a line break:
    sshd has no way to write one. StrictModes is off because it looks at parents that the agent does not
    own; the agent checks `directory` itself.
    """
    listen = "".join(f"ListenAddress {address}:{port}\n" for address in addresses)
    values = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in session_env.items()}
    given = [f'"{name}={value}"' for name, value in values.items() if not set("\r\n") & set(value)]
    set_env = f"SetEnv {' '.join(given)}\n" if given else ""
    return f"""\
Port {port}
AddressFamily inet
{listen}HostKey {directory}/host_key
HostKeyAlgorithms ssh-ed25519
PubkeyAcceptedKeyTypes ssh-ed25519,ssh-ed25519-cert-v01@openssh.com,sk-ssh-ed25519@openssh.com,\
ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-256,rsa-sha2-512
KexAlgorithms {KEX_LEFT_OUT}
Ciphers {CIPHERS}
MACs {MACS}
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
HostbasedAuthentication no
PermitEmptyPasswords no
PermitRootLogin prohibit-password
AllowUsers root
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
UsePAM no
LoginGraceTime 20
MaxAuthTries 6
MaxStartups 512:30:1000
MaxSessions 32
PermitTunnel no
GatewayPorts no
X11Forwarding no
PermitUserRC no
PermitUserEnvironment no
AcceptEnv A4_RUN
{set_env}ClientAliveInterval 10
ClientAliveCountMax 3
TCPKeepAlive yes
UseDNS no
Compression no
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
LogLevel VERBOSE
PidFile none
"""


def authorized_keys(job_key: str, people: str) -> str:
    """The job's key may run commands and a terminal, nothing else; people's keys are unrestricted."""
    lines = [line.strip() for line in people.splitlines() if line.strip()]
    return "".join(f"{line}\n" for line in [f"restrict,pty {job_key} a4-agent", *lines])


def known_hosts(port: int, keys: Mapping[str, str]) -> str:
    """One line per pod name: every host key is known before any pod starts."""
    return "".join(f"{name if port == 22 else f'[{name}]:{port}'} {key}\n" for name, key in keys.items())


def addresses(plan: Plan, port: int) -> str:
    """Client side: where pods are by the plan. DNS may still name the address of a pod that was replaced."""
    lines = []
    for peer in plan.peers:
        key = peer.name if port == 22 else f"[{peer.name}]:{port}"
        lines.append(f"Host {peer.names[0]} {peer.names[1]}\n    HostName {peer.address}\n    HostKeyAlias {key}\n")
    return "".join(lines)


def ssh_config(*, prefix: str, domain: str, pods: int, port: int, directory: str, replaced: bool) -> str:
    """Client side, for this job's peers only, by full and by short name. `directory` as in `sshd_config`; `replaced`:
    pods may be, and the file ADDRESSES there says where they are."""
    # One ? for each digit, because * would also fit full names, which would get the domain twice.
    short = " ".join(f"{prefix}0-{'?' * digits}" for digits in range(1, len(str(pods - 1)) + 1))
    include = f"Include {directory}/{ADDRESSES}\n" if replaced else ""
    return f"""\
{include}Host {short}
    HostName %h.{domain}
Host {prefix}0-*.{domain} {short}
    User root
    Port {port}
    IdentityFile {directory}/client_key
    IdentitiesOnly yes
    IdentityAgent none
    BatchMode yes
    StrictHostKeyChecking yes
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile /dev/null
    UpdateHostKeys no
    CheckHostIP no
    VerifyHostKeyDNS no
    HostKeyAlgorithms ssh-ed25519
    KexAlgorithms {KEX_CHEAP}
    Ciphers {CIPHERS}
    PreferredAuthentications publickey
    ConnectTimeout 10
    ConnectionAttempts 3
    ServerAliveInterval 5
    ServerAliveCountMax 3
    ForwardAgent no
    ForwardX11 no
    PermitLocalCommand no
    ControlMaster no
    ControlPath none
    CanonicalizeHostname no
    SendEnv A4_RUN
    LogLevel ERROR
"""


def with_block(text: str, block: str) -> str:
    """`text` with our marked block first, in place of an earlier one.

    First, because ssh takes the first value that it finds.
    """
    rest = without_block(text)
    return f"{BEGIN_BLOCK}\n{block.rstrip()}\n{END_BLOCK}\n" + (f"\n{rest}" if rest else "")


def without_block(text: str) -> str:
    """`text` as it was before `with_block`; a block without its end is not ours to cut."""
    before, begin, after = text.partition(BEGIN_BLOCK + "\n")
    _, end, tail = after.partition(END_BLOCK + "\n")
    return before + tail.removeprefix("\n") if begin and end else text
