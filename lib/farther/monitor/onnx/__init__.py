"""The ONNX graph of a bundle: from the prepared image to detections and the method's score."""

from farther.monitor.onnx.export import FILE, GraphThresholds, write_graph

__all__ = ["FILE", "GraphThresholds", "write_graph"]
