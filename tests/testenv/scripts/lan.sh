#!/bin/sh
# The network of the nodes: a network namespace with a switch, joined to nothing else. $1 is the network of the machine, which
# must not be this one; $2 the address of the switch, $3 that under which pods find the API server. The test process listens
# there, and hands on to the API server on the machine's loopback. All of it ends with this process.
set -eu
[ "$(readlink /proc/self/ns/net)" != "$1" ] || { echo "this is the machine's own network" >&2; exit 1; }

ip link set lo up
# A bridge without an address of its own takes that of a port, and another one when that port goes: who has learned the last
# one talks to nobody for a minute.
ip link add nodes address 02:00:00:00:00:01 type bridge
ip address add "$2/16" dev nodes
ip address add "$3/32" dev lo
ip link set nodes up
echo 1 >/proc/sys/net/ipv4/ip_forward

echo up
exec sleep infinity # and no child, which would outlive it
