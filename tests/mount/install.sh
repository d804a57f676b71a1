# tests/mount/install.sh BUILD_DIR: install.sh installs a boxdfs that works, as root into a prefix and
# as an ordinary user into the home directory.
# limit: 600
. "$(dirname "$0")/../lib.sh"

mkdir "$scratch/src"
(cd "$src" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$scratch/src")
chmod -R a+rX "$scratch/src"
limit=280

installed_works() { # installed_works PREFIX
    run "$1/bin/boxdfs version"
    succeeds
    prints boxdfs
    run "PATH=/usr/bin:/bin; mkdir -p box && $1/bin/boxdfs --local box && mkdir box/dev &&
        echo 'echo works' >box/dev/exec && cat box/dev/exec && $1/bin/boxdfs umount box"
    succeeds
    is "$out" works
}

as "${users%% *}"
suffix=$who
t "install.sh says what it does, and what is installed works"
run "cd $scratch/src && BOXDFS_RELEASE_BUILD=$home/build sh install.sh --no-packages --prefix $home/prefix"
succeeds
prints "installing to $home/prefix"
installed_works "$home/prefix"

t "the manuals and the library's headers are there too"
ok "[ -s $home/prefix/share/man/man1/boxdfs.1 ]"
ok "[ -s $home/prefix/include/boxd/client.h ]"
run "PKG_CONFIG_PATH=$home/prefix/lib/pkgconfig pkg-config --modversion libboxd"
succeeds

if [ "$who" = root ]; then
    as boxdtest
    suffix=$who
    t "an ordinary user gets it below ~/.local, and is told about PATH"
    run "cd $scratch/src && BOXDFS_RELEASE_BUILD=~/build sh install.sh"
    succeeds
    prints "$home/.local/bin is not in PATH"
    installed_works "$home/.local"
fi

t "a wrong option is named"
run "sh $scratch/src/install.sh --nonsense"
fails_with "unknown option '--nonsense'"

t "what cannot be installed is named, with the command that does it"
run "cd $scratch/src && printf '#!/bin/sh\nexit 1\n' >~/dpkg-query && cp ~/dpkg-query ~/sudo && chmod +x ~/dpkg-query ~/sudo &&
    PATH=~:\$PATH sh install.sh"
if [ "$who" = root ]; then skip "root installs them"; else fails_with "run this as root"; fi
finish
