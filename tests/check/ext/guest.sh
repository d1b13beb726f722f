# what: the scenarios of tests/check/ext.toml under the ext engine on this kernel, for comparison with the simulator
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 900
# One load serves all: every scenario's groups are made before, so that their gates can be named. From 7.0 on the kernel tells
# too little of what tasks of sched_ext run; then what they say themselves counts.
BED=ext
case $(uname -r) in 6.*) ;; *) BED=ext-own ;; esac
kernelbed /lib/scenarios gates 1 >/tmp/gates || fail "no gates"
set --
while read -r gate; do
	set -- "$@" --gate "$gate"
done </tmp/gates
ext_on "$@"
kernelbed costs ext
kernelbed /lib/scenarios $BED 60000
ext_is_on
ext_off
