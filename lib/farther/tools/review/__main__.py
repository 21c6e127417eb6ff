"""`python -m farther.tools.review BENCHMARK`."""

import sys

from farther.tools.review.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
