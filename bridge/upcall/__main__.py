"""`python -m upcall` is the command line."""

import os
import sys

# `python -m` searches the working folder first, which may be anybody's. Nothing of the
# standard library that is not part of the interpreter itself was imported until here.
if not sys.flags.safe_path and sys.path and sys.path[0] in {"", os.getcwd()}:
    del sys.path[0]

from upcall.cli import main

sys.exit(main())
