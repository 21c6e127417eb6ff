"""farther: what does an object detector do when it meets an object it was never taught?"""

__version__ = "0.1.0"
