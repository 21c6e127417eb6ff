"""Exit statuses of the command `farther`."""

#: Success.
FINE = 0
#: A check found something.
FINDINGS = 1
#: Wrong usage, input that cannot be used, or a stage that failed.
WRONG_INPUT = 2
#: Ctrl-C.
INTERRUPTED = 130
