#!/bin/sh
# Process 1 of a node, in its own root: network, containerd, images, kubelet. What the test says while it runs is in /opt/node:
# `no-containerd` and `no-kubelet` keep those from being started.
set -eu
export PATH=/opt/programs:/opt/programs/debian/usr/sbin:/opt/programs/debian/bin:/usr/sbin:/usr/bin:/sbin:/bin
socket=/run/containerd/containerd.sock

hostname "$NODE"
echo "$NODE" >/etc/hostname
echo "127.0.0.1 localhost $NODE" >/etc/hosts
printf '%s' "$NODE" | md5sum | cut -c 1-32 >/etc/machine-id

# As /run/initctl of System V: a program in the node's mount namespace needs no other to ask for a reboot. Who has asked has time
# to return; then everything gets its SIGTERM and half a second.
mkfifo /run/initctl
{
    read -r wish </run/initctl
    cut -d ' ' -f 1 /proc/uptime >>/opt/node/asked
    busybox sleep 0.5
    kill -s TERM -- -1 2>/dev/null || :
    busybox sleep 0.5
    busybox sync
    busybox "$wish" -f
} &
for name in systemctl reboot poweroff; do
    rm -f "/usr/bin/$name" "/usr/sbin/$name"
done
cp /opt/node/systemctl.sh /usr/bin/systemctl
ln -s systemctl /usr/bin/reboot
ln -s systemctl /usr/bin/poweroff
ln -sf /opt/programs/debian/bin/busybox /usr/local/bin/busybox

ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip address add "$ADDRESS/16" dev eth0
ip link set eth0 up
ip route add default via "$GATEWAY"
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add pods address 02:00:00:00:00:02 type bridge # as that of nodes, see lan.sh

# keep NAME PROGRAM...: runs it again and again, for as long as it is not said that it shall not
keep() {
    name=$1
    shift
    while :; do
        while [ -e "/opt/node/no-$name" ]; do sleep 0.1; done
        "$@" >>"/opt/node/$name.log" 2>&1 || :
        sleep 0.2
    done
}

keep containerd containerd --config /opt/node/containerd.toml &

until [ -e /opt/node/no-containerd ] || ctr --address "$socket" version >/dev/null 2>&1; do sleep 0.05; done
for image in /opt/images/*.tar; do
    # They survive a reboot, as on any disk.
    there=/var/lib/containerd/imported-$(basename "$image")
    [ -e "$there" ] || [ -e /opt/node/no-containerd ] || {
        ctr --address "$socket" --namespace k8s.io images import --local "$image" >>/opt/node/containerd.log 2>&1
        touch "$there"
    }
done

keep kubelet kubelet --config=/opt/node/kubelet.yaml --kubeconfig=/opt/node/kubeconfig --hostname-override="$NODE" \
    --node-ip="$ADDRESS" --node-labels="$LABELS" --cert-dir=/var/lib/kubelet/pki &
wait
