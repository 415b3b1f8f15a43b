#!/bin/sh
# The mount namespace of one node: enter.sh MACHINE NODE_DIR. Shows the machine's hardware and the node's own
# /var/lib/kubelet, keeps the kubelet's hands off the host, then holds the namespace open.
set -eu
machine=$1 node=$2
mkdir -p "$node/empty" "$node/log" "$node/sysctl"
# As on a real node: what kubelet and runtime mount reaches the containers that asked for it.
mount --make-rshared /

# cover SOURCE TARGET: bind where the kernel has the target, else under a tmpfs over its parent.
cover() {
    if [ ! -e "$2" ]; then
        mount -t tmpfs -o mode=755 testbed "$(dirname "$2")"
        if [ -d "$1" ]; then mkdir "$2"; else : > "$2"; fi
    fi
    mount --bind "$1" "$2"
}

for part in devices/system/node devices/system/cpu kernel/mm/hugepages; do
    source=$machine/sys/$part
    [ -d "$source" ] || source=$node/empty
    cover "$source" "/sys/$part"
done
cover "$node/bus-cpu" /sys/bus/cpu/devices
mount --bind "$machine/proc/meminfo" /proc/meminfo
mount --bind "$node/cpuinfo" /proc/cpuinfo

# The kubelet and the network plugins set these for the whole host; let them write to files of the node instead.
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys \
    kernel/keys/root_maxbytes net/ipv4/ip_forward; do
    if [ -e "/proc/sys/$name" ]; then
        copy=$node/sysctl/$(basename "$name")
        cat "/proc/sys/$name" > "$copy"
        mount --bind "$copy" "/proc/sys/$name"
    fi
done

mount --bind "$node/log" /var/log
if [ -d /var/lib/kubelet ]; then
    mount --bind "$node/root" /var/lib/kubelet
else # a folder of the host's own would stay behind: rebuild /var/lib with one entry more
    mkdir "$node/lib"
    mount --rbind /var/lib "$node/lib"
    mount -t tmpfs -o mode=755 testbed /var/lib
    for entry in "$node/lib"/*; do
        name=$(basename "$entry")
        if [ -L "$entry" ]; then cp -P "$entry" "/var/lib/$name"
        elif [ -d "$entry" ]; then mkdir "/var/lib/$name" && mount --rbind "$entry" "/var/lib/$name"
        elif [ -f "$entry" ]; then : > "/var/lib/$name" && mount --bind "$entry" "/var/lib/$name"
        fi
    done
    mkdir /var/lib/kubelet
    mount --bind "$node/root" /var/lib/kubelet
fi
: > "$node/entered"
exec sleep infinity
