#!/bin/sh
# Run a program inside a change-root folder. The mounts are made in a mount namespace
# of this process alone, so they vanish with it and nothing is left to undo.
#   enter.sh ROOT SHARED[:SHARED…] PROGRAM [ARGUMENT…]
# A job inside the folder finds the same client programs on its PATH as the shell that
# submitted it outside; there the program is simply run.
set -eu
root=$1
shared=$2
shift 2
if [ -e /.hpcplat-root ]; then
    exec "$@"
fi
if [ "${HPCPLAT_ENTERED:-}" != "$root" ]; then
    HPCPLAT_ENTERED=$root
    export HPCPLAT_ENTERED
    exec unshare --mount --propagation slave -- /bin/sh "$0" "$root" "$shared" "$@"
fi
unset HPCPLAT_ENTERED
for folder in /proc /dev /sys; do
    mount --rbind "$folder" "$root$folder"
done
IFS=:
for folder in $shared; do
    [ -d "$folder" ] || continue
    mkdir -p "$root$folder"
    mount --rbind "$folder" "$root$folder"
done
unset IFS
here=$(pwd)
[ -d "$root$here" ] || here=/
exec /usr/sbin/chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$here" "$@"
