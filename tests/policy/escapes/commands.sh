# Attacks on $CANARY, a directory outside of the sandbox. Each starts at a line `#: NAME [KIND]` and is run by itself.
# KIND says what it does without a sandbox, which a test checks: `bites` it changes the canary, `root` it does so for
# root only, `quiet` it does nothing here, or nothing that should be tried. $PY is a Python, $CALLS a program with
# attacks through system calls, $SCRATCH the scratch directory, $SOCK a Unix socket of a service that does what it is
# told, $PORT the same on loopback, $ABSTRACT its abstract address, $VICTIM a process of the same user, $MOUNTS the
# mount namespace outside. A command may do harm to nothing but these even when the sandbox fails; one that could
# prints `OPENED` and what it could have changed instead.
#: plain [bites]
echo x > "$CANARY/new"
#: append [bites]
echo x >> "$CANARY/a.txt"
#: truncate [bites]
: > "$CANARY/a.txt"
#: truncate-through-reading [bites]
"$PY" -c 'import os,sys; os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC)' "$CANARY/a.txt"
#: delete [bites]
rm -f "$CANARY/a.txt"
#: delete-tree [bites]
rm -rf "$CANARY/dir"
#: rename-within [bites]
mv "$CANARY/a.txt" "$CANARY/moved"
#: rename-into-scratch [bites]
mv "$CANARY/a.txt" "$SCRATCH/stolen"
#: rename-out-of-scratch [bites]
echo x > "$SCRATCH/own"; mv -f "$SCRATCH/own" "$CANARY/a.txt"
#: exchange [bites]
echo x > "$SCRATCH/own"; "$PY" "$CALLS" exchange "$SCRATCH/own" "$CANARY/a.txt"
#: directory [bites]
mkdir "$CANARY/newdir"
#: symlink [bites]
ln -s /etc/passwd "$CANARY/newlink"
#: hard-link-into-the-project [bites]
echo x > "$SCRATCH/own"; ln "$SCRATCH/own" "$CANARY/hard"
#: hard-link-out-and-write [bites]
ln "$CANARY/a.txt" "$SCRATCH/alias" && echo x >> "$SCRATCH/alias"
#: link-in-scratch-to-the-project [bites]
ln -sfn "$CANARY" "$SCRATCH/way"; echo x > "$SCRATCH/way/new"
#: link-in-scratch-to-a-file [bites]
ln -sf "$CANARY/a.txt" "$SCRATCH/way2"; echo x >> "$SCRATCH/way2"
#: up-from-scratch [bites]
cd "$SCRATCH" && echo x > "../canary/new"
#: through-own-root [bites]
echo x > "/proc/self/root$CANARY/new"
#: through-root-of-1 [quiet]
echo x > "/proc/1/root$CANARY/new"
#: through-working-directories [bites]
cd "$CANARY"; for d in /proc/[0-9]*/cwd; do echo x > "$d/new"; done
#: through-roots-of-all [bites]
for d in /proc/[0-9]*/root; do echo x > "$d$CANARY/new"; done
#: through-parent [bites]
echo x > "/proc/$PPID/root$CANARY/new"
#: open-handles [quiet]
for f in /dev/fd/* /proc/self/fd/*; do case "$(readlink "$f")" in pipe*|/dev/null|*/escapes/*) ;; *) echo x > "$f" ;; esac; done
#: inherited-numbers [quiet]
for n in 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do eval "echo x >&$n"; done
#: reopened-for-writing [bites]
exec 5<"$CANARY/a.txt"; echo x >> /proc/self/fd/5
#: mode [bites]
chmod 777 "$CANARY/a.txt"
#: mode-of-directory [bites]
chmod 777 "$CANARY/dir"
#: mode-of-handle [bites]
"$PY" -c 'import os,sys; os.fchmod(os.open(sys.argv[1], os.O_RDONLY), 0o777)' "$CANARY/a.txt"
#: mode-through-proc [bites]
"$PY" -c 'import os,sys; fd=os.open(sys.argv[1], os.O_PATH); os.chmod(f"/proc/self/fd/{fd}", 0o777)' "$CANARY/a.txt"
#: owner [root]
chown 12345:12345 "$CANARY/a.txt"
#: owner-to-the-same [bites]
"$PY" -c 'import os,sys; os.chown(sys.argv[1], os.getuid(), os.getgid())' "$CANARY/a.txt"
#: time [bites]
touch -d 2001-01-01 "$CANARY/a.txt"
#: time-now [bites]
touch "$CANARY/a.txt"
#: time-of-link [bites]
touch -h -d 2001-01-01 "$CANARY/link"
#: time-of-handle [bites]
"$PY" -c 'import os,sys; os.utime(os.open(sys.argv[1], os.O_RDONLY), (1, 1))' "$CANARY/a.txt"
#: attribute [bites]
"$PY" -c 'import os,sys; os.setxattr(sys.argv[1], "user.x", b"1")' "$CANARY/a.txt"
#: attribute-of-handle [bites]
"$PY" -c 'import os,sys; os.setxattr(os.open(sys.argv[1], os.O_RDONLY), "user.x", b"1")' "$CANARY/a.txt"
#: attribute-gone [bites]
"$PY" -c 'import os,sys; os.removexattr(sys.argv[1], "user.kept")' "$CANARY/a.txt"
#: access-list [bites]
"$PY" "$CALLS" access_list "$CANARY/a.txt"
#: file-flags [bites]
"$PY" "$CALLS" file_flags "$CANARY/a.txt"
#: project-id [bites]
"$PY" "$CALLS" extended_flags "$CANARY/a.txt"
#: allocate [bites]
fallocate -l 100000 "$CANARY/a.txt"
#: hole [bites]
fallocate -p -o 0 -l 2 "$CANARY/a.txt"
#: copy [bites]
cp /etc/passwd "$CANARY/a.txt"
#: dd [bites]
dd if=/dev/zero of="$CANARY/a.txt" bs=1 count=1 conv=notrunc
#: tee [bites]
echo x | tee "$CANARY/a.txt"
#: in-place [bites]
sed -i s/a/b/ "$CANARY/a.txt"
#: mapped [bites]
"$PY" "$CALLS" mapped "$CANARY/a.txt"
#: node [quiet]
mknod "$CANARY/disk" b 254 0; mknod "$SCRATCH/disk" b 254 0 && head -c 1 "$SCRATCH/disk" > /dev/null && echo x > "$CANARY/new"
#: pipe [bites]
mkfifo "$CANARY/fifo"
#: socket-file [bites]
"$PY" -c 'import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$CANARY/sock"
#: unix-socket [bites]
"$PY" "$CALLS" tell unix "$SOCK"
#: unix-datagram [quiet]
"$PY" -c 'import socket,sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", sys.argv[1])' "$SOCK"
#: unix-socket-through-link [bites]
ln -sf "$SOCK" "$SCRATCH/s"; "$PY" "$CALLS" tell unix "$SCRATCH/s"
#: abstract-socket [bites]
"$PY" "$CALLS" tell abstract "$ABSTRACT"
#: loopback [bites]
"$PY" "$CALLS" tell tcp "$PORT"
#: loopback-by-bash [bites]
exec 3<>"/dev/tcp/127.0.0.1/$PORT" && echo x >&3
#: loopback-v6-mapped [bites]
"$PY" "$CALLS" tell tcp6 "$PORT"
#: datagram [bites]
"$PY" "$CALLS" tell udp "$PORT"
#: other-families [quiet]
"$PY" "$CALLS" families
#: agents [quiet]
for s in "$SSH_AUTH_SOCK" /run/user/*/* /run/dbus/system_bus_socket /var/run/docker.sock /tmp/.X11-unix/* "$HOME"/.gnupg/S.*; do "$PY" "$CALLS" tell unix "$s"; done
#: signal [bites]
kill -9 "$VICTIM"
#: signal-by-thread [bites]
"$PY" "$CALLS" thread_kill "$VICTIM"
#: signal-by-handle [bites]
"$PY" "$CALLS" handle_kill "$VICTIM"
#: signal-queued [bites]
"$PY" "$CALLS" queue_signal "$VICTIM"
#: signal-by-owner-of-a-pipe [bites]
"$PY" "$CALLS" owner_signal "$VICTIM"
#: signal-to-its-group [bites]
kill -9 -- "-$VICTIM"
#: kill-the-parent [quiet]
kill -9 "$PPID"; echo x > "$CANARY/new"
#: limits-of-another [bites]
"$PY" "$CALLS" limit "$VICTIM"
#: attach-to-another [quiet]
"$PY" "$CALLS" attach "$VICTIM"
#: memory-of-another [quiet]
"$PY" "$CALLS" write_memory "$VICTIM"
#: memory-of-parent [quiet]
dd if=/dev/zero of="/proc/$PPID/mem" bs=1 count=1 seek=4096 conv=notrunc
#: handle-of-another [quiet]
"$PY" "$CALLS" take_handles "$VICTIM" "$CANARY"
#: shared-memory [bites]
"$PY" "$CALLS" shared_memory "$CANARY"
#: message-queue [bites]
"$PY" "$CALLS" message_queue
#: own-mounts [quiet]
unshare -Urm sh -c 'mount -o remount,rw / ; mount --bind / /mnt; echo x > "$CANARY/new"; umount "$CANARY"; echo x > "$CANARY/new"'
#: own-user [quiet]
unshare -U true && unshare -U sh -c 'echo x > "$CANARY/a.txt"'
#: remount [quiet]
if [ "$(readlink /proc/self/ns/mnt)" = "$MOUNTS" ]; then mount --bind "$CANARY" "$CANARY" && umount "$CANARY" && echo OPENED mounts
else mount -o remount,rw,bind /; mount -o remount,rw,bind /tmp; mount -o remount,rw,bind "$CANARY/.."; fi; echo x > "$CANARY/new"
#: remount-by-hand [quiet]
"$PY" "$CALLS" remount "$CANARY"
#: uncover [quiet]
umount -l "$SCRATCH"; umount -l "$CANARY"; umount -l "$CANARY/.."; echo x > "$CANARY/new"
#: new-mount-calls [quiet]
"$PY" "$CALLS" mount_calls "$CANARY"
#: cloned-namespace [quiet]
"$PY" "$CALLS" clone_namespaces "$CANARY"
#: namespace-of-another [quiet]
"$PY" "$CALLS" join_namespaces "$CANARY" "$VICTIM"
#: file-by-handle [root]
"$PY" "$CALLS" by_handle "$CANARY/a.txt"
#: chroot-out [quiet]
"$PY" "$CALLS" chroot_out "$CANARY"
#: ring [bites]
"$PY" "$CALLS" ring "$CANARY/ring"
#: program-in-memory [bites]
"$PY" "$CALLS" run_from_memory "$CANARY/new"
#: setuid-program [quiet]
"$CANARY/suid" -c 'echo x > "$CANARY/new"'; su -c "echo x > $CANARY/new"; sudo -n sh -c "echo x > $CANARY/new"
#: capable-program [quiet]
setpriv --inh-caps +all --ambient-caps +all sh -c 'echo x > "$CANARY/new"'
#: capabilities-back [quiet]
"$PY" "$CALLS" raise_capabilities "$CANARY/new"
#: other-table-of-calls [bites]
"$PY" "$CALLS" x32 "$CANARY/new"
#: outlives [bites]
nohup setsid sh -c 'for i in 1 2 3 4 5; do sleep 0.05; echo x > "$CANARY/late$i"; done' > /dev/null 2>&1 &
#: outlives-twice-forked [bites]
"$PY" "$CALLS" daemon "$CANARY/late"
#: outlives-by-disown [bites]
(trap '' HUP TERM; sleep 0.05; echo x > "$CANARY/late") > /dev/null 2>&1 & disown
#: waits-for-a-file [bites]
"$PY" -c 'import os,sys,time
if os.fork() == 0:
    os.setsid(); time.sleep(0.05); open(sys.argv[1], "w")
' "$CANARY/late"
#: terminal [quiet]
"$PY" "$CALLS" type_into_terminals
#: raw-disk [quiet]
for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/mem /dev/kmem /dev/port /proc/kcore; do [ -e "$d" ] && (: >> "$d") && echo "OPENED $d"; done
#: kernel-settings [quiet]
for f in /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger /sys/kernel/mm/ksm/run; do (: >> "$f") && echo "OPENED $f"; done
#: core-pattern [quiet]
(: >> /proc/sys/kernel/core_pattern) && echo OPENED core_pattern
#: control-groups [quiet]
find /sys/fs/cgroup -maxdepth 3 -name cgroup.procs 2>/dev/null | while read -r f; do (: >> "$f") 2>/dev/null && echo "OPENED $f"; done
#: loop-device [quiet]
losetup -f; truncate -s 1M "$SCRATCH/img"; losetup /dev/loop7 "$SCRATCH/img" && { losetup -d /dev/loop7; echo OPENED loop7; }
#: loop-control [quiet]
"$PY" "$CALLS" loop_control
#: scheduled [quiet]
echo true | at now && echo OPENED at; systemd-run --user true && echo OPENED systemd
crontab -l > "$SCRATCH/table" && crontab "$SCRATCH/table" && echo OPENED crontab
#: start-up-files [quiet]
for f in "$HOME/.bashrc" "$HOME/.profile" "$HOME/.gitconfig" "$HOME/.config/x"; do (echo x >> "$f") && echo "OPENED $f"; done
#: git-hooks [bites]
printf '#!/bin/sh\n' > "$CANARY/.git/hooks/post-checkout"
#: git-config [bites]
git -C "$CANARY" config core.fsmonitor 'sh -c x'
#: git-add [bites]
git -C "$CANARY" add -A
#: shared-memory-files [quiet]
"$PY" -c 'from multiprocessing import Lock; Lock()'; true
#: watched [quiet]
"$PY" "$CALLS" watch "$CANARY"
#: keyring [quiet]
"$PY" "$CALLS" keyring
#: kernel-programs [quiet]
"$PY" "$CALLS" kernel_programs
#: clock-and-name [quiet]
hostname "$(hostname)" && echo OPENED name; date -s "$(date)" && echo OPENED clock
sysctl -w kernel.domainname="$(cat /proc/sys/kernel/domainname)" && echo OPENED domain
