#!/bin/sh
# Stands for systemd: `systemctl reboot`, `reboot`, and the same with poweroff. It asks, and returns before anything happens.
case "${0##*/} $*" in
systemctl\ reboot* | reboot*) echo reboot >/run/initctl ;;
systemctl\ poweroff* | poweroff*) echo poweroff >/run/initctl ;;
*)
    echo "${0##*/} $*: not known on this node" >&2
    exit 1
    ;;
esac
