"""A stranger in the middle, who records one conversation and says the client's part again.

    relay.py record PORT SERVER SERVER_PORT FILE     passes one connection on, and writes what the client said
    relay.py replay SERVER SERVER_PORT FILE          says it again; prints how many bytes were answered before the end
"""
import pathlib
import select
import socket
import sys
import time

PATIENCE_S = 60


def connected(server, port):
    """A connection to a server that may not listen yet."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((server, int(port)))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def record(port, server, server_port, file):
    with socket.create_server(("", int(port))) as listener:
        print("listening", flush=True)
        client = listener.accept()[0]
    said = pathlib.Path(file).open("wb", buffering=0)
    upstream = connected(server, server_port)
    to = {client: upstream, upstream: client}
    while to:
        for source in select.select(list(to), [], [])[0]:
            try:
                data = source.recv(65536)
                to[source].sendall(data)
            except OSError:
                return
            if not data:
                return
            if source is client:
                said.write(data)


def replay(server, server_port, file):
    with socket.create_connection((server, int(server_port)), timeout=PATIENCE_S) as connection:
        connection.sendall(pathlib.Path(file).read_bytes())
        answered = 0
        try:
            while data := connection.recv(65536):
                answered += len(data)
        except ConnectionResetError:
            pass  # it had more to say than was listened to
        print(answered)


if __name__ == "__main__":
    {"record": record, "replay": replay}[sys.argv[1]](*sys.argv[2:])
