"""Embeds the images and class names of all changed datasets: `python stages/embed.py`."""

from farther.pipeline.embed import OUTPUT, main
from farther.stage import run_stage

if __name__ == "__main__":
    run_stage(main, OUTPUT)
