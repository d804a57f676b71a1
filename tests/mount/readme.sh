# tests/mount/readme.sh BUILD_DIR: the tour of README.md is true: its commands run as written, in a new
# home, and print what it shows below each of them.
. "$(dirname "$0")/../lib.sh"

# The tour is the indented block after the heading `## A tour`. A line that starts with `$ ` is typed;
# the lines up to the next one are what it prints.
awk '/^## /{ on = ($0 == "## A tour") } on && /^    /{ print substr($0, 5) }' "$src/README.md" >"$scratch/tour"
chmod 0644 "$scratch/tour"

# One shell for all of it, as a reader would type; each command's output ends with a mark.
awk '/^\$ /{ print substr($0, 3); print "echo; echo @@" NR " $?" }' "$scratch/tour" >"$scratch/typed"
chmod 0644 "$scratch/typed"

for who in $users; do
    as "$who"
    suffix=$who
    run "exec 2>&1; . $scratch/typed"
    printf '%s\n' "$out" >"$scratch/printed"
    t "the tour of README.md runs as written"
    is "$(grep -c '^@@' "$scratch/printed")" "$(grep -c '^\$ ' "$scratch/tour")"
    t "and prints what README.md shows"
    is "$(sed '/^@@/d; s/^bash: line [0-9]*: /bash: /; s/^.*typed: line [0-9]*: /bash: /' "$scratch/printed" | grep -v '^$')" \
        "$(grep -v '^\$ ' "$scratch/tour" | grep -v '^$')"
done
finish
