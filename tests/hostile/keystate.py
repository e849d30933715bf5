"""What a process keeps of its keys, and whether a process has it in its memory.

A process does not keep the pool's key. It keeps the state of SHA-256 after the first block of HMAC
(RFC 2104). It makes each proof from that state, and so can everybody else who has the state.
"""

import base64
import contextlib
import hashlib
import struct

BITS = 0xFFFFFFFF

# Larger parts of memory are heaps for devices.
PART_MAX = 256 << 20


def primes(count):
    found = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def fraction(prime, root):
    """Returns the first 32 bits of the fraction of a root of a prime number."""
    low, high = 0, prime << 32
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= prime << (32 * root) else (low, middle)
    return low & BITS


START = [fraction(prime, 2) for prime in primes(8)]
ROUNDS = [fraction(prime, 3) for prime in primes(64)]


def turned(word, by):
    return (word >> by | word << (32 - by)) & BITS


def after_block(block):
    """Returns the state of SHA-256 after its first block (FIPS 180-4, section 6.2.2)."""
    words = list(struct.unpack(">16I", block))
    for at in range(16, 64):
        old, new = words[at - 15], words[at - 2]
        small = turned(old, 7) ^ turned(old, 18) ^ old >> 3
        large = turned(new, 17) ^ turned(new, 19) ^ new >> 10
        words.append((words[at - 16] + small + words[at - 7] + large) & BITS)
    a, b, c, d, e, f, g, h = START
    for word, constant in zip(words, ROUNDS):
        chosen = e & f ^ ~e & g
        first = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + chosen + constant + word
        most = a & b ^ a & c ^ b & c
        second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + most
        a, b, c, d, e, f, g, h = (first + second) & BITS, a, b, c, (d + first) & BITS, e, f, g
    ends = (a, b, c, d, e, f, g, h)
    return [(start + end) & BITS for start, end in zip(START, ends)]


def of_key(key):
    """Returns the state as it lies in memory."""
    block = bytes(byte ^ 0x36 for byte in key.ljust(64, b"\0"))
    return struct.pack("=8I", *after_block(block))


def of_identity(file):
    """Returns all forms of the private key in a PEM file: as it is, and what Ed25519 makes of it
    (RFC 8032, section 5.1.5)."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("-")]
    seed = base64.b64decode("".join(lines))[-32:]
    digest = hashlib.sha512(seed).digest()
    scalar = bytearray(digest[:32])
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    return [seed, bytes(scalar), digest[32:]]


def of_handovers():
    """Returns how the notes begin with which a process hands over an encrypted connection. The
    traffic secrets come right behind these bytes."""
    suites, is_server = (b"\x13\x01", b"\x13\x02", b"\x13\x03"), (b"\0", b"\1")
    return [b"tcp:\1" + suite + side for suite in suites for side in is_server]


def has_in_memory(process, contents):
    """Returns whether a process has one of these contents where it can write."""
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(it, 16) for it in span.split("-"))
            if rights.startswith("rw") and end - start < PART_MAX:
                memory.seek(start)
                # Some parts belong to devices and cannot be read.
                with contextlib.suppress(OSError):
                    part = memory.read(end - start)
                    if any(content in part for content in contents):
                        return True
    return False
