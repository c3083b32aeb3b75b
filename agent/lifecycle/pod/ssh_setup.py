"""The files of SSH in this pod: derived keys, and the configuration of both ends."""

from __future__ import annotations

from agent.decide.keys import JobKeys
from agent.decide.plan import peer_name
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.ssh_files import authorized_keys, known_hosts, ssh_config, sshd_config, with_block
from agent.paths import ROOT_SSH_CONFIG, shipped_text

PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
"""What sessions get of the pod's environment, so that a remote orted is found and finds its libraries."""


def write_ssh_files(pod: Pod) -> None:
    """Write everything that sshd, ssh and the control channel need. Raises SystemFault."""
    settings = pod.settings
    _write_keys(pod, JobKeys(pod.job.secret, settings.epoch))
    client = ssh_config(
        prefix=settings.hostname_prefix,
        domain=settings.domain_name,
        pods=settings.nnodes,
        port=settings.ssh_port,
        directory=pod.dir.ssh,
        replaced=pod.settings.lives > 0,
    )
    pod.write(pod.dir.ssh_config, client, 0o600)
    write_sshd_config(pod)
    script = shipped_text(pod.machine.read, "entrypoints", "control-channel.sh")
    pod.write(f"{pod.dir.path}/control-channel.sh", script, 0o700)
    pod.state.attempt(ROOT_SSH_CONFIG, lambda: _write_root_config(pod))


def _write_keys(pod: Pod, keys: JobKeys) -> None:
    settings, ssh = pod.settings, pod.dir.ssh
    hosts = {
        peer_name(settings.hostname_prefix, index, settings.domain_name): keys.host_public(index)
        for index in range(settings.nnodes)
    }
    pod.write(f"{ssh}/host_key", keys.host_private(settings.index), 0o600)
    pod.write(f"{ssh}/client_key", keys.client_private(), 0o600)
    pod.write(f"{ssh}/authorized_keys", authorized_keys(keys.client_public(), settings.ssh_public_key), 0o600)
    pod.write(f"{ssh}/known_hosts", known_hosts(settings.ssh_port, hosts), 0o600)


def write_sshd_config(pod: Pod) -> bool:
    """Write sshd's configuration for the pod's present environment; return whether it changed. Raises SystemFault."""
    given = {name: pod.known.environ[name] for name in PASSED_ON if name in pod.known.environ}
    server = sshd_config(
        port=pod.settings.ssh_port,
        addresses=pod.ssh_addresses(),
        directory=pod.dir.ssh,
        session_env={**given, "SHLVL": "2"},  # keeps bash from reading .bashrc in each session
    )
    if pod.machine.read(pod.dir.sshd_config) == server:
        return False
    pod.write(pod.dir.sshd_config, server, 0o600)
    return True


def _write_root_config(pod: Pod) -> None:
    """Write root's ssh configuration. Only people use it, so a read-only home is no reason to end."""
    pod.machine.make_dir("/root/.ssh", 0o700)
    present = pod.machine.read(ROOT_SSH_CONFIG) or ""
    pod.machine.write(ROOT_SSH_CONFIG, with_block(present, f"Include {pod.dir.ssh_config}"), 0o600)
