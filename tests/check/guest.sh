# what: the scenarios of tests/check on this kernel, for comparison with the simulator
# modes: precise
# seconds: 900
kernelbed costs
kernelbed /lib/scenarios vm 60000
