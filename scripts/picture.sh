#!/bin/sh
# Records docs/tour.svg (make picture): side work under 30 % headroom next to a server, in top and
# explain, as a terminal shows them.
# As root; needs asciinema, stress-ng, and svg-term-cli of npm.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/target/release:$PATH

# typed COMMAND...: as if somebody typed it.
typed() {
	printf '# '
	printf '%s' "$*" | sed 's/./&\n/g' | while IFS= read -r letter; do
		printf '%s' "${letter:- }"
		sleep 0.03
	done
	echo
}

scene() {
	typed "tidegate run --side --name build --headroom 30% -- stress-ng -q --cpu 4 &"
	tidegate run -q --side --name build --headroom 30% -- stress-ng -q --cpu 4 &
	sleep 2
	typed tidegate top
	timeout --foreground 8 tidegate top || true
	clear
	typed tidegate explain build
	tidegate explain build
	sleep 4
	kill $!
}

if [ "${1:-}" = scene ]; then
	scene
	exit
fi
for program in asciinema stress-ng svg-term tidegate; do
	command -v $program >/dev/null || {
		echo "tidegate: picture: no $program; apt-get install asciinema stress-ng; npm install -g svg-term-cli; make build" >&2
		exit 1
	}
done
work=$(mktemp -d)
export TIDEGATE_RUN_DIR="$work/run" TIDEGATE_PREFIX=tgpicture
mkdir "$work/run"
# The server is there before: nginx's share of a quiet machine.
tidegate run -q --main --name web -- stress-ng -q --cpu 1 --cpu-load 40 --cpu-load-slice 5 &
server=$!
trap 'kill $server; tidegate agent stop >/dev/null; rm -rf "$work"' EXIT
sleep 3
asciinema rec -q --cols 100 --rows 30 -c "$0 scene" "$work/tour.cast"
svg-term --in "$work/tour.cast" --out docs/tour.svg --window --no-cursor
ls -l docs/tour.svg
