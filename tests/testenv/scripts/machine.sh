#!/bin/sh
# The machine of one node: power switch, disk and network cable. Process 1 of a pid namespace, so that the node, whatever it
# starts, ends with it. It gives the node a new boot id at each boot and writes them down; that is what reboots are counted by.
#
# NODE_DIR   the node's folder: configuration, logs, `boots` (boot ids, the last one is the present one), and what the test
#            says: `off` (the power stays off), `boot-seconds`
# CGROUPS    the node's cgroups, a folder for each hierarchy; HIERARCHIES says of which, and is `unified` with cgroup v2
# MACHINE_NET  the network of the machine outside
# NUMBER, ADDRESS, PODS, GATEWAY   number and address of the node, range of its pods, address of the switch
set -eu
mount -t proc proc /proc # /proc/PID has to mean the pids that are seen here
for cgroup in $CGROUPS; do
    if [ "$HIERARCHIES" = unified ]; then
        # In v2 a cgroup that hands controllers on holds no processes itself. boot.sh enters `node`.
        mkdir "$cgroup/machine" "$cgroup/node"
        echo 0 >"$cgroup/machine/cgroup.procs"
        sed 's/[a-z][a-z]*/+&/g' "$cgroup/cgroup.controllers" >"$cgroup/cgroup.subtree_control"
    else
        echo 0 >"$cgroup/cgroup.procs"
    fi
done

# In memory: nothing is left of it afterwards, and containerd's snapshots need a file system that is no overlay.
disk=$NODE_DIR/disk
mount -t tmpfs -o mode=755 disk "$disk"
mkdir "$disk/upper" "$disk/work" "$disk/root" "$disk/containerd" "$disk/kubelet"

# Pods of this node, from all others.
ip route add "$PODS" via "$ADDRESS" dev nodes onlink

plug_in() { # the node's process $1 into the switch; each boot has a cable of its own, since the last one may still be going
    ours=$(readlink /proc/self/ns/net)
    until theirs=$(readlink "/proc/$1/ns/net") && [ "$theirs" != "$ours" ]; do
        kill -0 "$1" || return
        sleep 0.01
    done
    [ "$theirs" != "$MACHINE_NET" ] || exit 1
    ip link add "n${NUMBER}b$boot" type veth peer name eth0 netns "$1"
    ip link set "n${NUMBER}b$boot" master nodes up
}

boot=0
while :; do
    while [ -e "$NODE_DIR/off" ]; do sleep 0.1; done
    sleep "$(cat "$NODE_DIR/boot-seconds")"
    boot=$((boot + 1))
    cat /proc/sys/kernel/random/uuid >>"$NODE_DIR/boots"
    unshare --fork --kill-child=KILL --pid --mount --uts --ipc --net "$NODE_DIR/boot.sh" </dev/null &
    node=$!
    plug_in "$node"
    code=0
    wait "$node" || code=$?
    # reboot(2) in a pid namespace ends its process 1: by SIGHUP for a reboot, by SIGINT for a halt.
    echo "boot $boot ended, $code"
    [ "$code" != 130 ] || touch "$NODE_DIR/off"
done
