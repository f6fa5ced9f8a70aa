"""`python -m fusionkit` is the command `fusionkit`."""

import sys

from fusionkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
