#!/bin/bash
# Prints the environment before and after a vendor's script has been sourced, as `env -0` does, with one more NUL
# between the two; what the script itself prints goes to stderr. Ends with the script's status if it fails.
#   bash vendor-script.sh SCRIPT
a4_agent_script=$1
shift  # the script finds no arguments
exec 3>&1 1>&2 </dev/null
/usr/bin/env -0 >&3
printf '\0' >&3
# shellcheck disable=SC1090
source "$a4_agent_script"
a4_agent_status=$?
if [ "$a4_agent_status" -ne 0 ]; then
    exit "$a4_agent_status"
fi
exec /usr/bin/env -0 >&3
