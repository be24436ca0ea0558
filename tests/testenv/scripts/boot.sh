#!/bin/sh
# Process 1 of a node until it has its own root: an overlay over that of the machine, which therefore stays as it is.
set -eu
if [ "${1-}" != own ]; then
    # A cgroup namespace begins where the process is that makes it.
    [ "$HIERARCHIES" != unified ] || echo 0 >"$CGROUPS/node/cgroup.procs"
    exec unshare --cgroup "$0" own
fi
disk=$NODE_DIR/disk
root=$disk/root
# The mounts of the last boot go with its last process, which may take a moment.
until mount -t overlay -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" node "$root"; do sleep 0.1; done

mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mkdir -p "$root/var/lib/containerd" "$root/var/lib/kubelet" "$root/opt/node" "$root/opt/programs" "$root/opt/images"
mount --bind "$disk/containerd" "$root/var/lib/containerd"
mount --bind "$disk/kubelet" "$root/var/lib/kubelet"
mount --bind "$NODE_DIR" "$root/opt/node"
mount --bind "$PROGRAMS" "$root/opt/programs"
mount --bind "$IMAGES" "$root/opt/images"

# The node sees the part of each cgroup hierarchy that is its own.
if [ "$HIERARCHIES" = unified ]; then
    mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
    mkdir -p "$root/sys/fs/cgroup/init"
    echo 0 >"$root/sys/fs/cgroup/init/cgroup.procs"
    sed 's/[a-z][a-z]*/+&/g' "$root/sys/fs/cgroup/cgroup.controllers" >"$root/sys/fs/cgroup/cgroup.subtree_control"
else
    mount -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup"
    for hierarchy in $HIERARCHIES; do
        mkdir "$root/sys/fs/cgroup/${hierarchy#name=}"
        case $hierarchy in name=*) options=none,$hierarchy ;; *) options=$hierarchy ;; esac
        mount -t cgroup -o "$options" cgroup "$root/sys/fs/cgroup/${hierarchy#name=}"
    done
fi

# What belongs to the machine's kernel stays as it is: the kubelet finds what it would set, and nobody finds the big red button.
mkdir "$root/run/kernel"
stands() { # for /proc/sys/$1, with the value $2
    file=$root/run/kernel/$(echo "$1" | tr / -)
    echo "$2" >"$file"
    mount --bind "$file" "$root/proc/sys/$1"
}
stands vm/overcommit_memory 1
stands vm/panic_on_oom 0
stands kernel/panic 10
stands kernel/panic_on_oops 1
stands kernel/keys/root_maxkeys 1000000
stands kernel/keys/root_maxbytes 25000000
stands kernel/random/boot_id "$(tail -n 1 "$NODE_DIR/boots")"
mount -o remount,bind,ro "$root/proc/sys/kernel/random/boot_id"
[ ! -e "$root/proc/sysrq-trigger" ] || mount --bind /dev/null "$root/proc/sysrq-trigger"

cd "$root"
mkdir -p mnt/machine
pivot_root . mnt/machine
cd /
umount -l /mnt/machine
mount --make-rshared /
exec /opt/node/init.sh
