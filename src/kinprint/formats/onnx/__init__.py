"""ONNX graphs."""
