"""cases.py: one line of TAP a case, for the Python scripts of the tests."""

import sys
import traceback

count = failed = 0


def case(name):
    """Runs the function at once; a case is good when it returns."""

    def run(function):
        global count, failed
        count += 1
        try:
            function()
            print(f"ok {count} - {name}", flush=True)
        except Exception:
            failed += 1
            print("# " + traceback.format_exc().strip().replace("\n", "\n# "))
            print(f"not ok {count} - {name}", flush=True)

    return run


def equal(got, want):
    assert got == want, f"got {got!r:.500}, want {want!r:.500}"


def done():
    sys.exit(failed > 0)
