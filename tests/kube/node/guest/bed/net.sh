export PATH=/bed/bin
for module in failover net_failover virtio_net overlay veth; do
	insmod /bed/modules/$module.ko
done
ip link set lo up
ip addr add 10.96.0.1/32 dev lo
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
echo 1 >/proc/sys/net/ipv4/ip_forward
