# what: a test that does not end is ended
# modes: precise
# kernels: 6.18
# seconds: 3
# expect: hung: killed after 3 s
sleep 1000
