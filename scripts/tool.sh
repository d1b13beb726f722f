#!/bin/sh
# Runs a tool of scripts/tools.txt, or one of PATH: scripts/tool.sh NAME ARGUMENT... Exit code 77:
# it is not installed.
name=$1
shift
tool=.cache/tools/bin/$name
[ -x "$tool" ] || tool=$(command -v "$name") || {
	echo "skipped: no $name: run scripts/setup.sh test"
	exit 77
}
exec "$tool" "$@"
