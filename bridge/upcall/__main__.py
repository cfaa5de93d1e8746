"""`python -m upcall` is the command line."""

import sys

from upcall.cli import main

sys.exit(main())
