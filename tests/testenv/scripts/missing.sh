#!/bin/sh
# What this machine lacks to run real nodes, a line each. Nothing is printed, and the exit code is 0, where all is there.
missing=0
lacks() {
    printf '%s\n' "$1"
    missing=1
}

[ "$(uname -s)" = Linux ] || lacks 'Linux: a node is a set of namespaces'
[ "$(id -u)" = 0 ] || lacks 'root: nodes mount, make network interfaces and run privileged containers'
for program in apt-get dpkg; do
    command -v "$program" >/dev/null || lacks "$program, of Debian or a system made from it: runc comes from a package of Debian"
done
command -v go >/dev/null || lacks 'Go (https://go.dev/dl): kubelet and containerd are built from source'
command -v ip >/dev/null || lacks 'ip (apt-get install iproute2)'
for program in unshare nsenter mount pivot_root; do
    command -v "$program" >/dev/null || lacks "$program (apt-get install util-linux mount)"
done
for kind in overlay tmpfs; do
    # A file system that is a module appears here once it is loaded.
    grep -qw "$kind" /proc/filesystems 2>/dev/null || modprobe "$kind" 2>/dev/null || lacks "the file system $kind, in the kernel"
done
[ "$missing" = 1 ] || unshare --mount --pid --fork --net true 2>/dev/null || lacks 'namespaces: unshare is refused here, as in most containers'
exit "$missing"
