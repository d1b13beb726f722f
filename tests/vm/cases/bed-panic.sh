# what: a panic of the guest's kernel fails the test that it happens in
# modes: smp
# expect: Kernel panic
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
