# what: a panic of the guest's kernel fails the test that it happens in
# modes: smp
# kernels: 6.18
# expect: Kernel panic
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
