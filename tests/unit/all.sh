# tests/unit/all.sh BUILD_DIR: runs the unit tests through meson and hands on their TAP lines.
# limit: 300
cd "$1" || exit 1
log=meson-logs/testlog-all-sh.txt
rm -f "$log"
meson test -C . --no-rebuild --suite unit --logbase testlog-all-sh >"$log.summary" 2>&1
status=$?
grep -E '^(ok|not ok|# )' "$log"
# A program that died said nothing of its end itself.
[ $status = 0 ] || grep -q '^not ok' "$log" || tail -60 "$log" | sed 's/^/# /'
exit $status
