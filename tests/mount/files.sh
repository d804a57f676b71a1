# tests/mount/files.sh BUILD_DIR: what files of a machine promise beyond the main path: open files that
# are unlinked, renamed, shared or read-only; limits; links that cannot lead out; kernel file systems.
. "$(dirname "$0")/../lib.sh"

if [ "$users" != "$who" ]; then as boxdtest; fi # root passes every check of modes
mount_local box -o script_max=8M
run "mkdir $M/dev && ls $M/dev/home/boxd"
succeeds
D=$M/dev
H=$D/home/boxd

t "a file over script_max is refused before a byte is sent, in both directions"
run "head -c 9M /dev/zero >nine && cp nine $H/nine"
fails_with "File too large"
run "stat -c %s $H/nine"
is "$out" 0
run "echo 'head -c 9M /dev/zero >~/big' >$D/exec && cat $H/big"
fails_with "File too large"
run "head -c 8M /dev/zero >eight && cp eight $H/eight && cmp eight $H/eight && rm $H/eight $H/big $H/nine"
succeeds

t "a long listing of 5000 files takes one question, not thousands"
run "echo 'mkdir ~/many; cd ~/many; i=0; while [ \$i -lt 5000 ]; do echo \$i >f\$i; i=\$((i+1)); done' >$D/exec"
succeeds
run "ls -l $H/many | wc -l; find $H/many -size +0 | wc -l; du -sb $H/many | wc -l"
is "$out" "5001
5001
1"
below "$took" 15000

t "what a listing said is not used after a script, a change, or a ctl command has ended"
run "python3 -c 'import os
def say(f, text):
    f = os.open(f, os.O_WRONLY); os.write(f, text); os.close(f)
def look():
    os.listdir(\"$H/many\")
for text in b\"echo more >>~/many/f1; rm ~/many/f2; rm ~/many/f3; mkdir ~/many/f3\\n\",:
    look(); before = os.stat(\"$H/many/f1\").st_size; look(); say(\"$D/exec\", text)
    print(before, os.stat(\"$H/many/f1\").st_size, os.path.exists(\"$H/many/f2\"), os.path.isdir(\"$H/many/f3\"))
look(); os.chmod(\"$H/many/f4\", 0o600); print(oct(os.stat(\"$H/many/f4\").st_mode))
look(); os.unlink(\"$H/many/f5\"); print(os.path.exists(\"$H/many/f5\"))
look(); open(\"$H/many/f6\", \"a\").write(\"x\" * 100); print(os.stat(\"$H/many/f6\").st_size)
look(); os.rename(\"$H/many/f7\", \"$H/many/f8\"); print(os.path.exists(\"$H/many/f7\"), open(\"$H/many/f8\").read())
e = os.open(\"$D/exec\", os.O_RDWR)
look(); os.write(e, b\"echo more >>~/many/f9\\n\"); os.read(e, 99); print(os.stat(\"$H/many/f9\").st_size)
'; echo 'rm -r ~/many' >$D/exec"
succeeds
is "$out" "2 7 False True
0o100600
False
102
False 7

7"

t "a FIFO of the machine is one, and a file that becomes one never blocks"
run "mkfifo $H/fifo && stat -c %F $H/fifo && ls -l $H >/dev/null && rm $H/fifo"
succeeds
is "$out" fifo
run "echo x >$H/f; exec 3<$H; echo 'rm ~/f; mkfifo ~/f' >$D/exec; timeout 5 stat -c %F $H/f; rm $H/f"
is "$out" fifo

t "a file created read-only takes what its creator writes"
run "python3 -c 'import os
f = os.open(\"$H/ro\", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
os.write(f, b\"first\"); os.write(f, b\" second\"); os.close(f)'; cat $H/ro; stat -c ' %a' $H/ro"
is "$out" "first second 444"
run "echo x >$H/ro"
fails_with "Permission denied"
run "rm -f $H/ro"
succeeds

t "an open file that is unlinked or replaced goes on"
run "echo content >$H/u; exec 3<>$H/u; rm $H/u; cat <&3; echo more >&3; test ! -e $H/u"
succeeds
is "$out" content
run "echo old >$H/u; echo new >$H/v; exec 3<$H/u; mv $H/v $H/u; cat - $H/u <&3; rm $H/u"
is "$out" "old
new"

t "an open file that is renamed is written under its new name"
run "exec 3>$H/before; echo one >&3; mv $H/before $H/after; echo two >&3; exec 3>&-; cat $H/after; rm $H/after"
is "$out" "one
two"

t "two opens of one file see each other's writes"
run "python3 -c 'import os
a = os.open(\"$H/s\", os.O_RDWR | os.O_CREAT, 0o644); b = os.open(\"$H/s\", os.O_RDWR)
os.write(a, b\"hello\"); print(os.pread(b, 9, 0)); os.pwrite(b, b\"J\", 0); print(os.pread(a, 9, 0))'; cat $H/s"
is "$out" "b'hello'
b'Jello'
Jello"

t "writes to the middle, behind the end, and O_APPEND keep the rest"
run "python3 -c 'import os
f = os.open(\"$H/s\", os.O_WRONLY); os.pwrite(f, b\"ll\", 1); os.pwrite(f, b\"end\", 8); os.close(f)
f = os.open(\"$H/s\", os.O_WRONLY | os.O_APPEND); os.write(f, b\"!\"); os.close(f)'; od -An -c $H/s"
is "$(tr -s ' ' <<<"$out")" ' J l l l o \0 \0 \0 e n d !'

t "appending does not fetch the file, and meets what the machine appended meanwhile"
run "echo one >$H/log; exec 3>>$H/log; echo 'echo two >>~/log' >$D/exec; echo three >&3; exec 3>&-; cat $H/log"
is "$out" "one
two
three"

t "a reader that stays sees what the machine adds"
run "echo a >$H/t; exec 3<$H/t; cat <&3; echo 'echo b >>~/t' >$D/exec; stat $H/t >/dev/null; cat <&3"
is "$out" "a
b"

t "times set before the close stay, as cp -p and tar need"
run "touch -d '2001-02-03 04:05:06.123456789' src && cp -p src $H/src && stat -c %y $H/src && echo x >src &&
    touch -d @981173106 src && cp -p src $H/src && stat -c %Y $H/src"
succeeds
prints 981173106

t "truncate by name and by descriptor"
run "printf 0123456789 >$H/t && truncate -s 4 $H/t && cat $H/t && truncate -s 6 $H/t && stat -c ' %s' $H/t &&
    python3 -c 'import os
f = os.open(\"$H/t\", os.O_RDWR); os.ftruncate(f, 2); os.pwrite(f, b\"x\", 2); os.close(f)' && cat $H/t"
is "$out" "0123 6
01x"

t "a failed close says why, and the program hears it"
run "mkdir $H/gone && python3 -c 'import os
f = os.open(\"$H/gone/f\", os.O_WRONLY | os.O_CREAT, 0o644)
os.system(\"echo rm -r \\\\~/gone >$D/exec\")
os.write(f, b\"x\")
try: os.close(f)
except OSError as e: print(e.strerror)'"
is "$out" "Stale file handle"

t "a directory of 5000 files lists in a moment, numbers agree with stat"
run "mkdir $H/many && echo 'cd ~/many && i=0; while [ \$i -lt 5000 ]; do : >f\$i; i=\$((i+1)); done' >$D/exec &&
    ls -f $H/many | wc -l"
succeeds
is "$out" 5002
below "$took" 10000
run "python3 -c 'import os
print([e.inode() for e in os.scandir(\"$H/many\") if e.name == \"f77\"] == [os.stat(\"$H/many/f77\").st_ino])'"
is "$out" True
run "echo 'rm -r ~/many' >$D/exec"

t "links cannot lead out of the machine"
run "echo 'ln -s /etc/hostname ~/abs; ln -s ../../../../../../etc/hostname ~/up; ln -s a/../../../../../../etc/hostname ~/mid
    ln -s s ~/rel; ln -s ../boxd/s ~/side; ln -s nowhere/x ~/dangling; ln -s /nowhere/../../x ~/out; ln -s loop ~/loop' >$D/exec"
succeeds
run "for l in abs up mid rel side dangling out; do readlink $H/\$l; done"
is "$out" "$D/etc/hostname
$D/etc/hostname
$D/etc/hostname
s
../boxd/s
nowhere/x
$D/x"
run "cat $H/rel $H/side | od -An -tx1 | head -1"
succeeds
run "cat $H/loop"
fails_with "Too many levels"

t "a link made with the mount's own path is stored as the machine's"
run "ln -s $D/etc/passwd $H/in && echo 'readlink ~/in' >$D/exec && cat $D/exec"
is "$out" /etc/passwd
run "cmp $H/in $D/etc/passwd"
succeeds

t "kernel file systems list empty and answer by name"
run "ls -A $D/proc $D/sys $D/dev; cat $D/proc/version; stat -c %F $D/dev/null; find $D/proc | wc -l"
succeeds
prints "Linux version"
prints "character special file"

t "the machine's user is the mounting user here"
run "touch $H/own && stat -c %U $H/own && chown $who $H/own && stat -c %u $D/etc/passwd"
succeeds
is "${out%%$'\n'*}" "$who"
run "chown nobody $H/own"
fails_with "Operation not permitted"

t "ctl, exec and .boxd cannot be removed, renamed or made"
run "rm -f $D/exec"
fails_with "Operation not permitted"
run "mv $D/ctl $D/ctl2"
fails_with "Operation not permitted"
run "mkdir $D/.boxd"
fails_with "File exists"
run "ls -A $D | grep -cxE 'ctl|exec|.boxd'"
is "$out" 2

t "every failure has its errno"
run "cat $H/nosuch";                fails_with "No such file"
run "cat $H";                       fails_with "Is a directory"
run "mkdir $H/a $H/a";              fails_with "File exists"
run "touch $H/a/x; rmdir $H/a";     fails_with "not empty"
run "touch $H/own/x";               fails_with "Not a directory"
run "cat $D/etc/shadow";            fails_with "Permission denied"
run "touch $D/etc/x";               fails_with "Permission denied"
run "touch $H/$(printf 'x%.0s' {1..256})"; fails_with "name too long"
run "mv -T $H/a $H/own";            [ "$status" != 0 ] || complain "a directory replaced a file"
run "mv -n $H/own $H/a/x; ls $H/own"; succeeds
run boxdfs umount "$M"
finish
