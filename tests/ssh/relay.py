"""A relay that holds all bytes for a time, as a network does.

The first bytes of a connection are held one round trip longer, for the handshake of TCP, which a
relay on this host does not slow down.
"""

import queue
import socket
import threading
import time


def pump(source, target, delay_s, first_s):
    """Copies until the end, each piece after its delay."""
    held = queue.Queue()

    def take():
        extra = first_s
        while True:
            try:
                piece = source.recv(1 << 16)
            except OSError:
                piece = b""
            held.put((time.monotonic() + delay_s + extra, piece))
            extra = 0
            if not piece:
                return

    threading.Thread(target=take, daemon=True).start()
    while True:
        due, piece = held.get()
        time.sleep(max(0, due - time.monotonic()))
        try:
            if not piece:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(piece)
        except OSError:
            return


def relay(client, address, delay_s):
    try:
        server = socket.create_connection(address)
    except OSError:
        client.close()
        return
    for one in (client, server):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    up = threading.Thread(target=pump, args=(client, server, delay_s, 2 * delay_s), daemon=True)
    up.start()
    pump(server, client, delay_s, 0)
    up.join()
    client.close()
    server.close()


def start(address, delay_s):
    """Relays connections to an address in threads. Returns the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=relay, args=(client, address, delay_s), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]
