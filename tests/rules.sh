# tests/rules.sh SOURCE LIBBOXD BOXDFS: what holds for the tree as a whole: layers, exported names,
# banned functions, and that the manual knows every word and option. TAP.
set -u
src=$1 lib=$(realpath "$2") boxdfs=$(realpath "$3") count=0 failed=0
cd "$src" || exit 1

# What is wrong comes by stdin, a line each; nothing is good.
none() { # none TITLE
    local wrong
    wrong=$(cat)
    count=$((count + 1))
    if [ -n "$wrong" ]; then
        echo "$wrong" | sed 's/^/# /'
        echo "not ok $count - $1"
        failed=1
    else
        echo "ok $count - $1"
    fi
}

# Hands on what comes and complains when it is little: a search that finds nothing proves nothing.
at_least() { awk -v n="$1" '{ print } END { if (NR < n) print "only", NR, "found" }'; }

exported() { nm -D --defined-only "$lib" | awk '{ print $3 }' | grep -v '^_' | sort -u; }
# A prototype may go over several lines; the name stands before the first parenthesis.
declared() {
    cat core/include/boxd/*.h | grep -v '^#' | tr '\n' ' ' | grep -oE 'BOXD_API [^(;]*\(' |
        sed -E 's/.*[ *]([a-z0-9_]+)\($/\1/' | at_least 50 | sort -u
}

ctl_words() { sed -nE 's/^    \{ "([a-z-]+)", (NULL|"([a-z-]+)"), [0-9].*/\1\n\3/p' fs/ctl_words.c | at_least 15; }
ctl_options() { sed -nE 's/^    \{ "([a-z-]+)", CTL_.*/\1/p' fs/ctl_words.c | at_least 10; }
mount_options() { "$boxdfs" help | sed -nE 's/^ *-o ([a-z_]+).*/\1/p' | at_least 10; }
# Of the names that come, those that stand in no heading of a list and in no bold word.
not_in_manual() {
    sed '/^$/d' | sort -u |
        comm -13 <(sed -nE 's/^\.(It|Cm) //p' man/boxdfs.1 | tr -s ' .' '\n' | sort -u) -
}

banned='strcpy|strncpy|strcat|strncat|sprintf|vsprintf|strtok|atoi|atol|popen|alloca|gets|mktemp|tmpnam|system'

none "libboxd exports what its public headers declare, and nothing else" < <(comm -3 <(exported) <(declared))
none "fs includes public headers of the library and base only" < <(
    grep -nE '#include ["<](rpc|api|machine|script|local)/' fs/*.[ch])
none "the library and the service know no FUSE" < <(
    grep -rnE --include='*.[ch]' '#include .*(fuse[^/]*\.h|fs/)' core | grep -v '^core/local/helper/view.c:')
none "base includes no layer above it, rpc only base" < <(
    grep -rnE '#include ["<](rpc|api|machine|script|local)/' core/base
    grep -rnE '#include ["<](api|machine|script|local)/' core/rpc)
none "no banned function is called" < <(
    grep -rnwE --include='*.[ch]' "($banned) ?\(" core fs tests | grep -vE '^core/base/banned\.h:|: *\*')
none "every word of ctl is in the manual" < <(ctl_words | not_in_manual)
none "every option of ctl's words is in the manual" < <(ctl_options | not_in_manual)
none "every option of a mount is in the manual" < <(mount_options | not_in_manual)
echo "1..$count"
exit $failed
