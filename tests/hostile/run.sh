#!/bin/bash
# Attacks a daemon and its workers: tests/hostile/run.sh [--part N/OF] [PART OF A NAME...]. Prints
# one line per attack; the last line counts them.
exec python3 "$(dirname "$0")/attacks.py" "$@"
