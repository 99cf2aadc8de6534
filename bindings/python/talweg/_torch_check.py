"""What talweg.torch imports first: a torch that is missing, or another than this talweg was built for, is reported in
one line before anything can stumble over it."""

from talweg._built import TORCH_RELEASES, TORCH_VERSION

if not TORCH_VERSION:
    raise ImportError(
        f"this talweg has no PyTorch face, because no torch {TORCH_RELEASES} was there when it was built: install one, "
        "then install talweg again from its sources (pip install --force-reinstall --no-deps .)")

try:
    import torch
except ImportError as error:
    raise ImportError(
        f"talweg.torch needs PyTorch, which cannot be imported here: pip install torch=={TORCH_VERSION}") from error

if torch.__version__.split("+")[0].split(".")[:2] != TORCH_VERSION.split(".")[:2]:
    raise ImportError(
        f"talweg.torch was built for torch {TORCH_VERSION}, but this is torch {torch.__version__}: install that torch, "
        "or install talweg again from its sources (pip install --force-reinstall --no-deps .)")
