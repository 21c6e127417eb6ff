"""`python -m farther.review BENCHMARK`."""

import sys

from farther.review.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
