#!/usr/bin/env bash
# Copies the files of a directory into another: copy-newer.sh SOURCE DESTINATION
# Those that are there, as long and no older, stay. A copy that was interrupted is shorter, and newer than its source.
set -euo pipefail
source=$1 destination=$2
cd "$source"
find . -type f -print0 | while IFS= read -r -d '' file; do
    copy=$destination/$file
    if [[ -f $copy && ! $file -nt $copy && $(stat -c %s "$file") == "$(stat -c %s "$copy")" ]]; then
        continue
    fi
    mkdir -p "${copy%/*}"
    cp "$file" "$copy"
done
