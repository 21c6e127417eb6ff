"""`python -m farther`: the command `farther`."""

import sys

from farther.command import main

if __name__ == "__main__":
    sys.exit(main())
