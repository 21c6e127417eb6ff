"""Wordings of messages that many readers of files share, for tests of one of the readers."""

#: A file or folder is not there.
ABSENT = "does not exist"
#: A name leads out of the folder that it must be in.
OUTSIDE = "leaves its folder"
#: A method scores before it is fitted.
NOT_FITTED = "not fitted"
#: A number is NaN or infinite.
NOT_FINITE = "not a finite number"
#: A file of PyTorch holds code, or anything else but weights.
NOT_WEIGHTS = "not a weights-only PyTorch file"
