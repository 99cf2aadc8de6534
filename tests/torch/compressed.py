"""What the hooks come to, in numpy: one step of all ranks for one parameter, whose gradients are given by rank."""

import numpy

TOP = {"int8": 127, "int4": 7}


def encode(values, code, block):
    """What is decoded of what is encoded."""
    if code == "f16":
        return values.astype(numpy.float16).astype(numpy.float32)
    if code == "bf16":  # to nearest even, by the bits
        bits = values.view(numpy.uint32).astype(numpy.uint64)
        return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(numpy.uint32).view(numpy.float32)
    out = numpy.zeros_like(values)
    for begin in range(0, values.size, block):
        part = values[begin:begin + block]
        scale = numpy.float32(numpy.abs(part).max() / numpy.float32(TOP[code]))
        if scale != 0:
            codes = numpy.rint(part * (numpy.float32(1) / scale)).clip(-TOP[code], TOP[code])
            out[begin:begin + block] = codes.astype(numpy.float32) * scale
    return out


class Encoded:
    """fp16, bf16, int8, int4."""

    def __init__(self, code, block=256):
        self.code, self.block = code, block
        self.residuals = self.of_sums = None

    def step(self, gradients):
        shares = contributions(gradients)
        if self.residuals is None:
            self.residuals, self.of_sums = numpy.zeros_like(shares), numpy.zeros_like(shares[0])
        total = None
        for share, residual in zip(shares, self.residuals):
            decoded = encode(share + residual, self.code, self.block)
            residual[:] = share + residual - decoded
            total = decoded if total is None else total + decoded
        decoded = encode(total + self.of_sums, self.code, self.block)
        self.of_sums = total + self.of_sums - decoded
        return decoded


class Chosen:
    """top_k, threshold, block_top_k: choose(values) says which elements a rank sends."""

    def __init__(self, choose):
        self.choose = choose
        self.residuals = None

    def step(self, gradients):
        shares = contributions(gradients)
        if self.residuals is None:
            self.residuals = numpy.zeros_like(shares)
        total = numpy.zeros_like(shares[0])
        for share, residual in zip(shares, self.residuals):
            values = share + residual
            sent = numpy.zeros(values.size, bool)
            sent[self.choose(values)] = True
            residual[:] = numpy.where(sent, 0, values)
            total += numpy.where(sent, values, numpy.float32(0))
        return total


def contributions(gradients):
    return (numpy.stack(gradients) / numpy.float32(len(gradients))).astype(numpy.float32)


def largest(ratio, width=1):
    def choose(values):
        width_here = min(width, values.size)
        rows = -(-values.size // width_here)
        padded = numpy.zeros(rows * width_here, numpy.float32)
        padded[:values.size] = values
        norms = numpy.square(padded.reshape(rows, width_here), dtype=numpy.float64).sum(1)
        order = numpy.argsort(-norms, kind="stable")[:max(1, int(numpy.ceil(ratio * rows)))]
        elements = (order[:, None] * width_here + numpy.arange(width_here)).ravel()
        return elements[elements < values.size]

    return choose


def at_least(least, ranks):
    return lambda values: numpy.flatnonzero(numpy.abs(values) >= numpy.float32(least / ranks))
