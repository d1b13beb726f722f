#!/bin/sh
# Runs a tool of scripts/tools.txt as one check: scripts/tool.sh NAME ARGUMENT...
set -eu
name=$1
shift
tool=.cache/tools/bin/$name
[ -x "$tool" ] || tool=$(command -v "$name") || {
	echo "skipped: no $name: run scripts/setup.sh test"
	echo "0 passed, 0 failed, 1 skipped"
	exit 77
}
"$tool" "$@" || {
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}
echo "1 passed, 0 failed, 0 skipped"
