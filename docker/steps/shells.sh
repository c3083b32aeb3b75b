#!/bin/sh
# steps/shells.sh: the agent's command for every shell, its completion, and the environment of workloads in people's shells.
#
# The agent writes the hook at each start as well; with it here, `kubectl exec -- bash` has it where /etc is read-only.
set -eu
home=/opt/a4-agent
ln -sf "$home/bin/a4-agent" /usr/local/bin/a4-agent
mkdir -p /etc/profile.d /usr/share/bash-completion/completions
"$home/bin/a4-agent" completion bash >/usr/share/bash-completion/completions/a4-agent
"$home/bin/python" -I - <<'PROGRAM'
from pathlib import Path

from agent.decide.env_sh import hook
from agent.lifecycle.pod.ssh_files import with_block
from agent.paths import BASHRC, DEFAULT_RUN_DIR, PROFILE_SCRIPT, RunDir

text = hook(RunDir(DEFAULT_RUN_DIR).env_sh)
Path(PROFILE_SCRIPT).write_text(text)
bashrc = Path(BASHRC)
bashrc.write_text(with_block(bashrc.read_text() if bashrc.exists() else "", text))
PROGRAM
