# tests/valgrind/unit.sh BUILD_DIR: the unit tests under valgrind: no error and no leak.
# limit: 600
cd "$1" || exit 1
count=0 failed=0
for program in tests/unit/test-*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    count=$((count + 1))
    log=$(valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect --child-silent-after-fork=yes --trace-children=no \
        "./$program" 2>&1) && echo "ok $count - ${program##*/} is clean under valgrind" && continue
    echo "$log" | grep -v '^ok ' | sed 's/^/# /'
    echo "not ok $count - ${program##*/} is clean under valgrind"
    failed=1
done
echo "1..$count"
exit $failed
