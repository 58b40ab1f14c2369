#!/bin/sh
# A package's life: installed, serving, upgraded, removed, installed again, purged. `check.rs` runs it as root:
#
#   life.sh outside plain|systemd WORLD PACKAGE LATER-PACKAGE
#
# "outside" makes namespaces, and in the mode systemd a control group, which it removes at the end. "enter" makes WORLD a view of this machine's
# root whose changes are in memory, with devices, processes and a network of its own. "inside" is the life; each step says what it found.
set -eu

outside() {
    how=$1
    if [ "$how" = plain ]; then
        exec unshare --mount --pid --fork --kill-child --net --ipc --uts sh "$0" enter "$@"
    fi
    if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then
        groups=/sys/fs/cgroup before=$(sed -n 's/^0:://p' /proc/self/cgroup)
    else
        groups=/sys/fs/cgroup/systemd before=$(sed -n 's/^[0-9]*:name=systemd://p' /proc/self/cgroup)
    fi
    own=$groups/evenkeel-package.$$
    mkdir "$own"
    echo $$ >"$own/cgroup.procs"
    status=0
    unshare --mount --pid --fork --kill-child --net --ipc --uts --cgroup sh "$0" enter "$@" || status=$?
    echo $$ >"$groups$before/cgroup.procs"
    find "$own" -depth -type d -exec rmdir {} +
    exit $status
}

enter() {
    how=$1 world=$2 package=$3 later=$4
    hierarchy=$(stat -fc %T /sys/fs/cgroup)
    mount --make-rprivate /
    mount -t tmpfs tmpfs "$world"
    mkdir "$world/upper" "$world/work" "$world/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$world/upper,workdir=$world/work" "$world/root"
    new=$world/root
    mkdir "$new/packages"
    cp "$package" "$new/packages/first.deb"
    cp "$later" "$new/packages/later.deb"
    cp "$0" "$new/packages/life.sh"
    mount -t proc proc "$new/proc"
    mount -t sysfs sysfs "$new/sys"
    mount -t tmpfs -o mode=755 tmpfs "$new/run"
    mount -t tmpfs tmpfs "$new/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$new/dev"
    for name in null zero full random urandom tty; do
        touch "$new/dev/$name"
        mount --bind "/dev/$name" "$new/dev/$name"
    done
    touch "$new/dev/console"
    mkdir "$new/dev/shm" "$new/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$new/dev/pts"
    ln -s pts/ptmx "$new/dev/ptmx"
    ln -s /proc/self/fd "$new/dev/fd"
    ip link set lo up
    if [ "$how" = systemd ]; then
        if [ "$hierarchy" = cgroup2fs ]; then
            mount -t cgroup2 cgroup2 "$new/sys/fs/cgroup"
        else
            mount -t tmpfs -o mode=755 tmpfs "$new/sys/fs/cgroup"
            mkdir "$new/sys/fs/cgroup/systemd"
            mount -t cgroup -o none,name=systemd,xattr cgroup "$new/sys/fs/cgroup/systemd"
        fi
    fi
    # Nothing that this machine has of an earlier installation, and no rule that keeps packages from starting services.
    rm -rf "$new/etc/evenkeel" "$new/var/lib/evenkeel" "$new/var/backups/evenkeel" "$new/usr/sbin/policy-rc.d"
    cd "$new"
    pivot_root . mnt
    umount -l /mnt
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    if [ "$how" = plain ]; then
        exec bash /packages/life.sh inside plain
    fi
    (
        until systemctl is-system-running --wait >/dev/null 2>&1; do sleep 0.1; done
        status=0
        bash /packages/life.sh inside systemd || status=$?
        systemctl exit $status
    ) &
    exec env -i container=test PATH=$PATH /lib/systemd/systemd --system --show-status=no --log-target=journal systemd.unit=basic.target
}

# The rest is bash: it speaks to the server through /dev/tcp.

fail() {
    echo "FAILED: $*" >&2
    [ ! -e /tmp/log ] || tail -n 20 /tmp/log >&2
    [ ! -d /run/systemd/system ] || systemctl --no-pager status evenkeel >&2 || true
    [ ! -d /run/systemd/system ] || journalctl --no-pager -n 40 -u evenkeel >&2 || true
    exit 1
}

# is WHAT WANTED FOUND
is() {
    [ "$2" = "$3" ] || fail "$1: wanted \`$2\`, found \`$3\`"
    echo "  $1: $2"
}

owned() { stat -c '%U:%G %a' "$1" 2>/dev/null || echo gone; }

there() { if [ -e "$1" ]; then echo there; else echo gone; fi; }

# Sends one request; prints the first line of the reply, or the text of a bulk reply.
ask() {
    local line
    exec 3<>/dev/tcp/127.0.0.1/6379 || return 1
    printf '%s\r\n' "$*" >&3
    read -r -t 10 line <&3 || return 1
    case $line in '$'[0-9]*) read -r -t 10 line <&3 || return 1 ;; esac
    exec 3>&-
    echo "${line%$'\r'}"
}

serves() { (ask PING) 2>/dev/null || echo silent; }

# The server runs: by systemd, or as the unit would start it.
start() {
    if [ "$how" = systemd ]; then
        is "the service" active "$(systemctl is-active evenkeel || true)"
    else
        local program
        program=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/evenkeel.service)
        # shellcheck disable=SC2086 # words of a command line
        setpriv --reuid evenkeel --regid evenkeel --init-groups --no-new-privs --bounding-set=-all --inh-caps=-all $program >/tmp/log 2>&1 &
        server=$!
        for _ in $(seq 100); do
            [ "$(serves)" = silent ] || break
            kill -0 "$server" 2>/dev/null || fail "the server ended"
            sleep 0.1
        done
    fi
    is "the server answers" +PONG "$(serves)"
}

# Without systemd nobody else stops it.
stop() {
    [ "$how" = plain ] || return 0
    kill "$server"
    wait "$server" || fail "the server did not stop well"
}

dpkg_quietly() { dpkg --force-unsafe-io --no-triggers "$@" >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "dpkg $*"; }; }

# What the unit must not forbid: io_uring, and workers and their programs, which lower their own limits and take a password.
sandbox() {
    mkdir -p /srv/components
    printf '#!/bin/sh\nexec evenkeel component "$@"\n' >/srv/components/child
    chmod 755 /srv/components/child
    cat >/tmp/counts.yaml <<'END'
name: counts
spouts:
  - id: orders
    className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
    constructorArgs: [[evenkeel, component, stream-spout, orders], [item]]
bolts:
  - id: count
    className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
    constructorArgs: [[/srv/components/child, count, --by, item, --prefix, "sold:"], [item, count]]
streams:
  - {from: orders, to: count, grouping: {type: FIELDS, args: [item]}}
END
    printf '%s\n' 'connector = "uring"' 'journal.backend = "uring"' 'requirepass = "secret"' \
        'topologies.dir = "/srv/components"' \
        'topologies.worker_nice = 5' 'topologies.worker_memory_max = "256MiB"' >/tmp/more
    cp -p /etc/evenkeel/evenkeel.toml /tmp/before
    cat /tmp/more >>/etc/evenkeel/evenkeel.toml
    systemctl restart evenkeel || fail "a start with more settings"
    export REDISCLI_AUTH=secret
    evenkeel topology run /tmp/counts.yaml >/tmp/topology 2>&1 || fail "topology run: $(cat /tmp/topology)"
    for _ in $(seq 100); do
        answer=$(
            exec 3<>/dev/tcp/127.0.0.1/6379
            printf '%s\r\n' "AUTH secret" "INFO server" "XADD orders * item anchor" "HEXISTS sold:count anchor" QUIT >&3
            timeout 10 cat <&3 | tr -d '\r'
        )
        printf '%s\n' "$answer" | grep -q '^:1$' && break
        sleep 0.1
    done
    is "a topology counts" :1 "$(printf '%s\n' "$answer" | grep '^:')"
    is "connector" uring "$(printf '%s\n' "$answer" | sed -n 's/^connector://p')"
    cp -p /tmp/before /etc/evenkeel/evenkeel.toml
    systemctl restart evenkeel
}

inside() {
    how=$1
    link=/etc/systemd/system/multi-user.target.wants/evenkeel.service
    echo "install"
    dpkg_quietly -i /packages/first.deb
    is "data folder" "evenkeel:evenkeel 700" "$(owned /var/lib/evenkeel)"
    is "folder of settings" "evenkeel:evenkeel 750" "$(owned /etc/evenkeel)"
    is "settings" "evenkeel:evenkeel 640" "$(owned /etc/evenkeel/evenkeel.toml)"
    is "backups" "evenkeel:evenkeel 700" "$(owned /var/backups/evenkeel)"
    is "enabled" "$(readlink -f /usr/lib/systemd/system/evenkeel.service)" "$(readlink -f $link)"
    start
    is "SET" +OK "$(ask SET life lived)"
    is "CONFIG SET" +OK "$(ask CONFIG SET memory.limit 200MiB)"
    is "CONFIG REWRITE" +OK "$(ask CONFIG REWRITE)"
    is "the file has it" 'memory.limit = "200MiB"' "$(grep '^memory.limit' /etc/evenkeel/evenkeel.toml)"
    evenkeel backup /var/lib/evenkeel /var/backups/evenkeel/one >/tmp/backup 2>&1 || fail "backup: $(cat /tmp/backup)"
    is "its backup" "evenkeel:evenkeel" "$(stat -c %U:%G /var/backups/evenkeel/one)"
    if [ "$how" = systemd ]; then
        systemctl reload evenkeel
        for _ in $(seq 100); do
            journalctl -o cat -u evenkeel | grep -q SIGHUP && break
            sleep 0.1
        done
        is "reload" 1 "$(journalctl -o cat -u evenkeel | grep -c SIGHUP)"
        sandbox
        first=$(systemctl show -P MainPID evenkeel)
    fi

    echo "upgrade"
    dpkg_quietly -i /packages/later.deb
    is "version" later "$(dpkg-query -W -f '${Version}' evenkeel | sed 's/.*+\(.*\)-1/\1/')"
    if [ "$how" = systemd ]; then
        is "another process" yes "$([ "$first" = "$(systemctl show -P MainPID evenkeel)" ] || echo yes)"
    fi
    stop
    start
    is "GET" lived "$(ask GET life)"
    is "settings are kept" 'memory.limit = "200MiB"' "$(grep '^memory.limit' /etc/evenkeel/evenkeel.toml)"

    echo "remove"
    stop
    dpkg_quietly -r evenkeel
    is "the server" silent "$(serves)"
    is "program" gone "$(there /usr/bin/evenkeel)"
    is "data" there "$(there /var/lib/evenkeel/LOCK)"
    is "settings" there "$(there /etc/evenkeel/evenkeel.toml)"
    is "user" evenkeel "$(getent passwd evenkeel | cut -d: -f1)"

    echo "install again"
    dpkg_quietly -i /packages/later.deb
    start
    is "GET" lived "$(ask GET life)"

    echo "purge"
    stop
    touch /etc/evenkeel/password
    dpkg_quietly -P evenkeel
    is "the server" silent "$(serves)"
    is "data folder" gone "$(there /var/lib/evenkeel)"
    is "settings" gone "$(there /etc/evenkeel/evenkeel.toml)"
    is "what was beside them" "root:root 750" "$(owned /etc/evenkeel)"
    is "user" gone "$(getent passwd evenkeel || echo gone)"
    is "group" gone "$(getent group evenkeel || echo gone)"
    is "link" gone "$(if [ -L $link ]; then echo there; else echo gone; fi)"
    is "backups" "root:root" "$(stat -c %U:%G /var/backups/evenkeel/one)"
    echo "the package was installed, upgraded, removed and purged"
}

task=$1
shift
"$task" "$@"
