#!/bin/sh
# Joins an SSH session to this pod's agent: what comes in on stdin goes to the agent, what the agent
# says goes to stdout. The coordinator runs it as the command of its control channel.
# No Python, because starting one costs every pod what the whole SSH session costs.
#
# usage: control-channel.sh RUN_DIR
# exit:  0 the agent or the coordinator closed the channel; 3 no agent is running here
set -eu
cd "$1/channels" 2>/dev/null || { echo "no a4-agent has been started here ($1)" >&2; exit 3; }

# The door is a FIFO that a living agent holds open; opened for writing only, a dead one would block us.
[ -s agent.pid ] || { echo "a4-agent is still starting here" >&2; exit 3; }
read -r agent < agent.pid
kill -0 "$agent" 2>/dev/null || { echo "a4-agent is not running here any more (pid $agent)" >&2; exit 3; }
[ -p door ] || { echo "a4-agent is still starting here" >&2; exit 3; }

umask 077
mkfifo "$$.in" "$$.out"
trap 'rm -f "$$.in" "$$.out"' EXIT
echo "$$" 1<> door

exec 3< "$$.out" 4> "$$.in" 5<&0
cat <&5 >&4 3<&- &          # ends when the SSH connection does; the agent then sees the end of .in
exec 4>&- 5<&- 0</dev/null
cat <&3                     # ends when the agent closes .out
kill $! 2>/dev/null || true
