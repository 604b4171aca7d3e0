# What stands around the commands of the page: guests that show that they live, and an image to begin with.
exec 2>&1
set -m
export PATH="/box/bin:$PATH"

# A guest is what the page types, with a kernel and a console besides. It checks what was on its disk, writes, reads
# back, and counts its rounds.
mkdir bin root
cat >bin/qemu-system-x86_64 <<'QEMU'
#!/bin/bash
# Without hardware help some versions of QEMU get the flags of cmpxchg16b wrong now and then, and code that the kernel
# changes while another processor runs it.
words=("${@//accel=kvm:tcg,/}")
words=("${words[@]/#max/max,-cx16}")
exec /usr/bin/qemu-system-x86_64 "${words[@]}" -accel tcg,thread=single -nodefaults -no-reboot -display none \
    -serial "file:/box/$2.console" -append "console=ttyS0 quiet panic=-1 no_timer_check" -kernel /box/vmlinuz -initrd /box/disk
QEMU
chmod +x bin/qemu-system-x86_64
cat >root/test <<'TEST'
test "$(dd if=/dev/vda bs=6 count=1 2>/dev/null)" = SYSTEM
dd if=/dev/urandom of=/raw bs=64k count=8 2>/dev/null
round=0
while true; do
    dd if=/raw of=/dev/vda bs=64k seek=$((16 + round % 100 * 8)) oflag=direct 2>/dev/null
    dd if=/dev/vda bs=64k skip=$((16 + round % 100 * 8)) count=8 iflag=direct 2>/dev/null | cmp - /raw
    round=$((round + 1))
    echo ROUND $round
    sleep 0.1
done
TEST
truncate -s %4 initramfs
cp initramfs disk
(cd root && echo test | busybox cpio -o -H newc 2>/dev/null) >>disk
truncate -s 8M system.raw
printf SYSTEM | dd of=system.raw conv=notrunc 2>/dev/null
qemu-img convert -f raw -O qcow2 system.raw system.qcow2

# fails COMMAND: ends here, with the server's own words.
fails() {
    echo "failed: $1"
    journalctl --no-pager -u iofair -n 30
    exit 1
}

# guest NAME ROUNDS: waits until it has done so many more rounds than at the last look.
guest() {
    echo "guest $1: $2 more rounds"
    if [ ! -e "$1.seen" ]; then echo 0 >"$1.seen"; fi
    for _ in $(seq 600); do
        if [ "$(rounds "$1")" -ge $(($(cat "$1.seen") + $2)) ]; then break; fi
        if grep -q 'TEST FAILED' "$1.console"; then break; fi
        sleep 0.2
    done
    if [ "$(rounds "$1")" -lt $(($(cat "$1.seen") + $2)) ]; then
        cat "$1.console"
        fails "guest $1 goes on"
    fi
    rounds "$1" >"$1.seen"
}
rounds() {
    cat "$1.console" 2>/dev/null | grep -c ROUND || true
}

