#!/bin/bash
# Checks the systemd units as systemd itself reads them: tests/packaging/units.sh. A unit that is
# wrong, or that gives the daemon more rights than before, fails. Nothing is started: that would
# need systemd as the first process. Exits with 77 if systemd is not installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
# In tenths, as `systemd-analyze security` takes it. The daemon's unit has 2.2 of 10. What is left
# is that it uses networks and devices.
exposure_max=22
if ! command -v systemd-analyze >/dev/null; then
    echo "SKIPPED: systemd-analyze is missing; install the Debian package systemd" >&2
    exit 77
fi
bin=${PENSTOCK_BIN:-$PWD/target/release}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
ln -s "$bin/penstock" "$bin/penstockd" "$scratch/bin"
code=0
for unit in penstockd penstock root penstock-metrics; do
    if [ $unit = root ]; then
        # As systemd reads the first unit with its drop-in.
        cat "$scratch/penstockd.service" packaging/worker-users.conf >"$scratch/root.service"
    elif [ $unit = penstock-metrics ]; then
        sed "s|@PREFIX@|$scratch|" packaging/prometheus/$unit.service.in >"$scratch/$unit.service"
    else
        sed "s|@PREFIX@|$scratch|" "packaging/$unit.service.in" >"$scratch/$unit.service"
    fi
    # It warns about what it does not know, and exits with 0 then.
    said=$(systemd-analyze verify --man=no "$scratch/$unit.service" 2>&1) || code=1
    said=$(grep -F "$unit.service" <<<"$said")
    if [ -n "$said" ]; then
        echo "$said"
        code=1
    fi
done
# A daemon of root, whose workers have users of their own, has 3.5.
exposure_of_root_max=35
# What asks for metrics needs no more than sockets, and has 1.2.
exposure_of_metrics_max=12
# check UNIT MOST: a unit that has more rights fails.
check() {
    systemd-analyze security --offline=true --threshold="$2" "$scratch/$1.service" \
        >"$scratch/exposure" || { cat "$scratch/exposure"; code=1; }
    tail -1 "$scratch/exposure"
}
check penstockd "$exposure_max"
check root "$exposure_of_root_max"
check penstock-metrics "$exposure_of_metrics_max"
exit $code
