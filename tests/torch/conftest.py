import os
import sys

HERE = os.path.dirname(__file__)
sys.path += [os.path.join(HERE, "..", "..", "examples")]
sys.path.insert(0, HERE)
