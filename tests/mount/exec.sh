# tests/mount/exec.sh BUILD_DIR: what the exec file promises beyond the main path: how scripts may be
# cut, what is sticky, what a read-write open does, who sees whose output.
. "$(dirname "$0")/../lib.sh"

if [ "$users" != "$who" ]; then as boxdtest; fi
mount_local box
run "mkdir $M/dev && ls $M/dev/home/boxd"
succeeds
D=$M/dev
E=$D/exec

t "a failing write is sticky: later writes of that open fail and run nothing"
run "exec 3>$E; echo 'exit 7' >&3 && exit 1; echo 'touch ~/never' >&3 && exit 1; exec 3>&-
    test ! -e $D/home/boxd/never && cat $D/.boxd/last/exit"
succeeds
is "$out" "exit 7"

t "the first failing command ends a script, set +e opts out"
run "printf 'echo a\nfalse\necho b\n' >$E"
fails_with "write error"
run "cat $E"
is "$out" a
run "printf 'set +e\nfalse\necho b\n' >$E && cat $E"
is "$out" b

t "a syntax error fails its write"
run "echo ')' >$E"
fails_with "write error"

t "text may be cut anywhere, in the middle of a word too"
run "python3 -c 'import os
f = os.open(\"$E\", os.O_WRONLY)
for c in b\"echo one\\ncat <<X\\ntwo\\nX\\nif true; then\\necho \\\"th\\nree\\\"\\nfi\\n\": os.write(f, bytes([c]))
os.close(f)' && cat $E"
succeeds
is "$out" "one
two
th
ree"

t "text without a final newline runs at the close, which returns its result"
run "printf 'echo last' >$E; for i in {1..50}; do [ \"\$(cat $E)\" = last ] && exit 0; sleep 0.1; done; exit 1"
succeeds
run "python3 -c 'import os
f = os.open(\"$E\", os.O_WRONLY); os.write(f, b\"exit 5\")
try: os.close(f)
except OSError as e: print(e.strerror)'"
is "$out" "Input/output error"

t "a descriptor that is shared by commands is one script"
run "{ echo 'x=1'; /bin/echo 'echo x\$x'; } >$E && cat $E"
is "$out" x1

t "a long script runs: 30000 lines, and cp of a file with one"
run "{ for i in {1..30000}; do echo 'n=\$((n+1))'; done; echo 'echo \$n'; } >long && cp long $E && cat $E"
succeeds
is "$out" 30000

t "a script's standard input is empty"
run "printf 'cat\nread x || echo none\n' >$E && cat $E"
is "$out" none

t "long output is kept up to 10 MiB, then its end"
run "echo 'head -c 3000000 /dev/zero; echo; echo end' >$E && cat $E | wc -c && cat $E | tail -n1"
is "$out" "3000005
end"
run "echo 'head -c 15000000 /dev/zero; echo; echo end' >$E && cat $E | wc -c && cat $E | tail -n1"
succeeds
below "${out%%$'\n'*}" 12000000
prints end

t "each terminal session has its own last script"
run "echo 'echo mine' >$E; setsid -w bash -c \"echo 'echo other' >$E; cat $E\"; cat $E"
is "$out" "other
mine"

t "a read-write open goes on after failures, keeps its variables and ends reads when idle"
run "exec 3<>$E; cat <&3; echo 'false; echo \$?; x=3' >&3; cat <&3; echo 'echo \$x' >&3; cat <&3"
is "$out" "1
3"

t "output streams as it comes"
run "exec 3<>$E; echo 'echo first; sleep 3; echo second' >&3; s=\${EPOCHREALTIME/.}; read -r -u 3 l
    echo \"\$l \$(((\${EPOCHREALTIME/.} - s) / 1000000))\""
is "$out" "first 0"

t "poll waits for output"
run "python3 -c 'import os, select
f = os.open(\"$E\", os.O_RDWR); p = select.poll(); p.register(f, select.POLLIN)
os.write(f, b\"sleep 0.5; echo here\\n\"); print(p.poll(100)); print(p.poll(5000) != []); print(os.read(f, 99))'"
is "$out" "[]
True
b'here\n'"

t "closing a read-write open kills what still runs"
run "exec 3<>$E; echo 'sleep 3101' >&3; sleep 0.3; exec 3>&-
    for i in {1..30}; do echo 'if grep -qsz ^3101\$ /proc/[0-9]*/cmdline; then exit 1; fi' >$E && exit 0; sleep 0.1; done 2>/dev/null; exit 1"
succeeds

t "what a caller that waits is told when its machine goes"
run "mkdir $M/brief && ls $M/brief >/dev/null && { (sleep 0.5; echo destroy >$M/brief/ctl) & echo 'sleep 20' >$M/brief/exec; }"
ok "[ $status != 0 ]"
below "$took" 15000

t "a script sees what was written to files that are still open, from any kind of open"
run "python3 -c 'import os
f = os.open(\"$D/home/boxd/still\", os.O_WRONLY | os.O_CREAT)
g = os.open(\"$D/home/boxd/still2\", os.O_WRONLY | os.O_CREAT)
e = os.open(\"$E\", os.O_WRONLY)
os.write(f, b\"one\\n\"); os.write(g, b\"x\" * 1000000); os.write(e, b\"cat ~/still; wc -c <~/still2\\n\")
os.write(f, b\"two\\n\"); os.write(e, b\"cat ~/still\\n\")
print(open(\"$E\").read(), end=str())
h = os.open(\"$E\", os.O_RDWR)
os.write(f, b\"three\\n\"); os.write(h, b\"tail -n1 ~/still\\n\"); print(os.read(h, 99))
os.close(f)' && cat $D/home/boxd/still"
succeeds
is "$out" "one
1000000
one
two
b'three\n'
one
two
three"

t "a file that cannot be sent fails its own close, not the script"
run "mkdir $D/home/boxd/doomed && python3 -c 'import os
f = os.open(\"$D/home/boxd/doomed/f\", os.O_WRONLY | os.O_CREAT)
e = os.open(\"$E\", os.O_WRONLY)
os.write(e, b\"rm -r ~/doomed\\n\"); os.write(f, b\"x\"); os.write(e, b\"echo ran\\n\")
try: os.close(f)
except OSError as e: print(e.strerror)'; cat $E; grep doomed/f $D/.boxd/errors"
succeeds
prints "Stale file handle
ran"
prints "write /home/boxd/doomed/f: a script does not see what was written"

t "exec has no size, and cannot be changed"
run "stat -c '%s %F' $E; chmod 777 $E"
fails_with "Operation not permitted"
run boxdfs umount "$M"
finish
