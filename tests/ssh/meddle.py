"""Comes between a bridge and its client: runs `penstock bridge` and changes its greeting.

    meddle.py [PATTERN REPLACEMENT] [--wait SECONDS] [--copy FILE] [--relay SECONDS] [--direct]

Replaces PATTERN in the line of the greeting, passes the line on after the wait, leaves a copy of
the line in FILE, and then copies bytes both ways until one side ends. With --relay, the greeting
names the port of a relay that holds all bytes for this time.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time

import relay

MAGIC = b"\n\x1epenstock-bridge\x1e "


def copy(source, target):
    try:
        while piece := os.read(source, 1 << 16):
            while piece:
                piece = piece[os.write(target, piece) :]
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("change", nargs="*")
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--copy")
    parser.add_argument("--relay", type=float)
    parser.add_argument("--direct", action="store_true")
    arguments = parser.parse_args()
    command = ["penstock", "bridge"] + ["--direct"] * arguments.direct
    bridge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    greeting = bridge.stdout.readline() + bridge.stdout.readline()
    if not greeting.startswith(MAGIC):
        sys.exit(f"no greeting: {greeting}")
    if arguments.copy:
        with open(arguments.copy, "ab") as file:
            file.write(greeting)
    if arguments.change:
        pattern, replacement = (word.encode() for word in arguments.change)
        greeting, count = re.subn(pattern, replacement, greeting)
        if count != 1:
            sys.exit(f"the greeting has no {pattern}: {greeting}")
    offered = re.search(rb"direct=(\d+)", greeting)
    if arguments.relay is not None and offered:
        port = relay.start(("127.0.0.1", int(offered[1])), arguments.relay)
        greeting = greeting.replace(offered[0], f"direct={port}".encode())
    time.sleep(arguments.wait)
    os.write(1, greeting)

    def up():
        copy(0, bridge.stdin.fileno())
        bridge.stdin.close()

    threading.Thread(target=up, daemon=True).start()
    copy(bridge.stdout.fileno(), 1)
    # With it ends the relay, whose client has hung up before.
    bridge.kill()


main()
