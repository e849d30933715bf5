#!/bin/bash
# Attacks a daemon and its workers: tests/hostile/run.sh [--part N/OF] [PART OF A NAME...]. One line per attack; the last line counts.
exec python3 "$(dirname "$0")/attacks.py" "$@"
