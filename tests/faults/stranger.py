"""A stranger on a host: says again, as their senders, datagrams that have passed there before, whole, with a bit
turned or cut off, sends nonsense to the ports that they went to, and leaves nonsense at ports of TCP.

  stranger.py SEED ADDRESS:PORT...     until SIGTERM; then how many datagrams it has said again
"""
import contextlib
import random
import signal
import socket
import sys
import time

KEPT = 400  # datagrams, of all times: also of jobs that are over
MOST_BYTES = 1400  # what a packet takes that nobody cuts into pieces
OPEN = 8  # connections that say nothing any more
ETH_P_IP = 0x0800


class Stranger:
    def __init__(self, seed, doors):
        self.random, self.doors = random.Random(seed), doors
        self.seen, self.open, self.repeated = [], [], 0
        self.ears = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
        self.ears.setblocking(False)
        self.mouth = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def listen(self):
        for _ in range(8):
            try:
                packet = self.ears.recv(65535)
            except BlockingIOError:
                return
            if packet[9] != socket.IPPROTO_UDP or not 28 < len(packet) <= MOST_BYTES:
                continue
            if len(self.seen) < KEPT:
                self.seen.append(packet)
            else:
                self.seen[self.random.randrange(KEPT)] = packet

    def speak(self):
        packet = bytearray(self.random.choice(self.seen))
        packet[26:28] = bytes(2)  # no checksum of UDP: what was meant to fill it in has not seen this copy
        how = self.random.random()
        if how < 0.25:
            bit = self.random.randrange(28 * 8, len(packet) * 8)
            packet[bit // 8] ^= 1 << bit % 8
        elif how < 0.35:
            del packet[self.random.randrange(28, len(packet)):]
        elif how < 0.5:
            packet[28:] = self.random.randbytes(self.random.randrange(0, 1300))
        packet[24:26] = (len(packet) - 20).to_bytes(2, "big")
        with contextlib.suppress(OSError):
            self.mouth.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
            self.repeated += how >= 0.5

    def knock(self):
        address, port = self.random.choice(self.doors).split(":")
        with contextlib.suppress(OSError):
            door = socket.create_connection((address, int(port)), 0.2)
            door.send(self.random.randbytes(self.random.randrange(1, 400)))
            self.open.append(door)
        if len(self.open) > OPEN or self.random.random() < 0.3:
            for door in self.open:
                door.close()
            self.open.clear()


def main():
    stranger = Stranger(int(sys.argv[1]), sys.argv[2:])
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    beat = 0
    while not ended:
        stranger.listen()
        if stranger.seen:
            stranger.speak()
        if beat % 50 == 0:
            stranger.knock()
        beat += 1
        time.sleep(0.002)
    print(stranger.repeated)


if __name__ == "__main__":
    main()
