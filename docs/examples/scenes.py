"""Writes `scenes.mp4`, a video of scenes of the demo."""

from pathlib import Path

import cv2
import supervision as sv

scenes = sorted(Path("artifacts/demo/coco/val2017").glob("*.jpg"))[:60]
with sv.VideoSink("scenes.mp4", sv.VideoInfo(224, 224, fps=2)) as video:
    for scene in scenes:
        video.write_frame(sv.letterbox_image(cv2.imread(str(scene)), (224, 224)))
