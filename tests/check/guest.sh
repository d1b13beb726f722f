# what: the scenarios of tests/check on this kernel, for comparison with the simulator
# modes: precise
# seconds: 900
kernelbed costs
kernelbed /lib/scenarios.txt vm 60000 $(cat /lib/scenarios.parts)
