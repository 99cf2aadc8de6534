"""The shared page of bench/peers/board.h, for ranks that are Python programs. Same file layout."""
import mmap
import os
import struct
import time

MAX_RANKS = 64
SLOT_BYTES = 64
MAX_SAMPLES = 1024
BYTES = MAX_RANKS * (SLOT_BYTES + MAX_SAMPLES * 8)
PATIENCE_SECONDS = 120


class Board:
    def __init__(self, path, rank, size):
        self.rank, self.size, self.passed = rank, size, 0
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, BYTES)
        self.memory = mmap.mmap(descriptor, BYTES)
        os.close(descriptor)

    def barrier(self):
        """Asleep until all are here, then spinning so that all leave together; board.h says why."""
        self.meet(lambda: time.sleep(50e-6))
        self.meet(os.sched_yield)

    def meet(self, pause):
        # An aligned word is copied by one store or load, which x86 and Python's own locks keep in order.
        self.passed += 1
        struct.pack_into("=Q", self.memory, self.rank * SLOT_BYTES, self.passed)
        deadline = time.monotonic() + PATIENCE_SECONDS
        for r in range(self.size):
            while struct.unpack_from("=Q", self.memory, r * SLOT_BYTES)[0] < self.passed:
                pause()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"rank {self.rank} waited two minutes for rank {r}")

    def max_over_ranks(self, mine):
        form = f"={len(mine)}d"
        struct.pack_into(form, self.memory, self.offset(self.rank), *mine)
        self.barrier()
        columns = zip(*(struct.unpack_from(form, self.memory, self.offset(r)) for r in range(self.size)))
        most = [max(column) for column in columns]
        self.barrier()
        return most

    @staticmethod
    def offset(rank):
        return MAX_RANKS * SLOT_BYTES + rank * MAX_SAMPLES * 8
